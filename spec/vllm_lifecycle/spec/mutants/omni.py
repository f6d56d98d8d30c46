"""Defects of vllm-omni's AR scheduler (KV hand-off and chunk gate), as variants of the specification."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.spec.lang.build import State, exists, ite
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Block,
    Flight,
    Kind,
    Request,
    Row,
    Status,
    Step,
    Transfer,
)
from vllm_lifecycle.spec.mutants.mutant import mutant
from vllm_lifecycle.spec.mutants.vllm import TOUCHED, forget_transfer


@mutant("ship_handoff", breaks="only_an_outstanding_transfer_pins_blocks", corpus=["A1"], sizes=(1, 1, 1))
def an_acknowledgement_is_lost_with_an_empty_step(s: State, r: Request) -> None:
    """The acknowledgement rides on a step's output; a step without tokens brings none, and nothing else will."""
    empty = ~exists(
        Request, Step, lambda x, k: (s.flight[k] == Flight.BUILDING) & (s.row[k, x] == Row.CURRENT)
    )
    s.transfer[r, Kind.HANDOFF] = ite(empty, Transfer.DONE, Transfer.ACTIVE)


@mutant("abort_request", breaks=TOUCHED, corpus=["A2"], features=["handoff"], sizes=(1, 1, 1))
def an_abort_frees_what_is_about_to_be_shipped(s: State, r: Request, hold: bool) -> None:
    """Triggered and not yet active: the abort frees the blocks, the pending shipment still names them."""
    s.transfer[r, Kind.HANDOFF] = s.old.transfer[r, Kind.HANDOFF]
    s.remote[r, Kind.HANDOFF, :] = lambda b: s.old.remote[r, Kind.HANDOFF, b]
    s.pinned[r, Kind.HANDOFF, :] = False
    do.settle(s)


@mutant("preempt_request", breaks=TOUCHED, corpus=["A4", "A15"], features=["handoff"], sizes=(1, 1, 1))
def a_preemption_frees_what_is_handed_off(s: State, r: Request) -> None:
    """Preemption ignores background readers."""
    s.pinned[r, Kind.HANDOFF, :] = False
    do.settle(s)


@mutant(
    "abort_request", breaks="a_handoff_names_some_block", corpus=["A5"], features=["handoff"], sizes=(1, 1, 1)
)
def a_request_that_never_ran_is_handed_off(s: State, r: Request, hold: bool) -> None:
    """Aborting a request that was never scheduled ships an empty list and waits for its acknowledgement."""
    s.transfer[r, Kind.HANDOFF] = ite(
        exists(Block, lambda b: s.old.table[r, b]), s.transfer[r, Kind.HANDOFF], Transfer.NEEDED
    )


@mutant(
    "abort_request",
    breaks="a_trigger_mark_belongs_to_a_live_request",
    corpus=["A7"],
    features=["handoff"],
    sizes=(1, 1, 1),
)
def the_once_mark_outlives_its_request(s: State, r: Request, hold: bool) -> None:
    """The once-mark leaks on abort, so the next request with the id is never shipped."""
    s.triggered[r] = s.old.triggered[r]


@mutant(
    "refuse_duplicate_request",
    breaks="the_engine_survives_every_breach",
    corpus=["A9"],
    features=["send"],
    sizes=(1, 1, 1),
)
def reusing_a_held_id_kills_the_engine(s: State, r: Request) -> None:
    """Adding an id whose last owner is still held trips an assertion."""
    s.alive = s.alive & (s.status[r] != Status.WAITING_FOR_TRANSFER_FREE)


@mutant(
    "acknowledge_handoff",
    breaks=TOUCHED,
    corpus=["A10"],
    features=["handoff", "load", "preemption"],
    sizes=(1, 2, 1),
)
def an_acknowledgement_frees_blocks_under_a_receive(s: State, r: Request) -> None:
    """The acknowledgement's path frees everything, also what a remote writer still fills."""
    forget_transfer(s, r, Kind.RECEIVE)


@mutant("acknowledge_handoff", breaks=TOUCHED, corpus=["A12"], features=["handoff", "send"], sizes=(1, 1, 1))
def an_acknowledgement_frees_blocks_under_a_send(s: State, r: Request) -> None:
    """The omni hold is released without asking the connector."""
    forget_transfer(s, r, Kind.SEND)


@mutant("send_completes", breaks=TOUCHED, corpus=["A12"], features=["handoff"], sizes=(1, 1, 1))
def a_send_completion_frees_what_is_handed_off(s: State, r: Request) -> None:
    """The connector's completion is released without asking the omni hand-off."""
    forget_transfer(s, r, Kind.HANDOFF)


@mutant(
    "stop_request",
    breaks="the_output_carries_the_parameters_of_every_transfer",
    corpus=["A13"],
    features=["handoff", "send"],
    sizes=(1, 1, 1),
)
def handoff_parameters_replace_the_connectors(
    s: State, k: Any, r: Request, reason: Status, hold: bool
) -> None:
    """One dictionary for two senders: the connector's transfer parameters are lost."""
    s.output_params[r, Kind.SEND] = s.output_params[r, Kind.SEND] & ~s.output_params[r, Kind.HANDOFF]


@mutant("acknowledge_handoff", breaks=TOUCHED, corpus=["A18"], features=["handoff"], sizes=(1, 1, 1))
def one_rank_acknowledges_for_all(s: State, r: Request) -> None:
    """The acknowledgement of one rank frees blocks that the others still copy."""
    s.remote[r, Kind.HANDOFF, :] = lambda b: s.old.remote[r, Kind.HANDOFF, b]


@mutant(
    "stop_request",
    breaks="a_request_handed_off_at_its_end_ships_all_its_blocks",
    corpus=["A19"],
    features=["handoff", "prefix"],
    sizes=(1, 1, 1),
)
def only_some_groups_are_shipped(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """The hand-off names the blocks of one KV group only."""
    s.remote[r, Kind.HANDOFF, :] = lambda b: s.remote[r, Kind.HANDOFF, b] & s.old.cached[b]


@mutant(
    "abort_request",
    breaks="a_finished_request_is_in_no_queue",
    corpus=["A22"],
    features=["chunks"],
    sizes=(1, 1, 1),
)
def an_abort_leaves_a_parked_request_in_the_running_list(s: State, r: Request, hold: bool) -> None:
    """The status says waiting, so the abort searches the wrong queue."""
    s.in_running[r] = s.old.in_running[r] & (s.old.status[r] == Status.WAITING_FOR_CHUNK)


@mutant(
    "resume_with_chunk", breaks="a_running_request_is_in_the_running_list", corpus=["A23"], sizes=(1, 1, 1)
)
def a_surplus_request_waits_as_running(s: State, r: Request) -> None:
    """More chunks than slots: a request goes to the waiting queue with the status RUNNING."""
    s.in_waiting[r] = True
    s.in_running[r] = False


@mutant("park_for_chunk", breaks="a_request_in_the_running_list_runs", corpus=["A22"], sizes=(1, 1, 1))
def a_parked_request_loses_its_origin(s: State, r: Request) -> None:
    """Nobody remembers that the request was running when it was parked."""
    s.parked_running[r] = False


@mutant(
    "abort_request",
    breaks="only_a_live_request_is_polled_for_or_has_a_chunk",
    corpus=["A26"],
    features=["chunks"],
    sizes=(1, 1, 1),
)
def an_abort_leaves_the_poll_entry(s: State, r: Request, hold: bool) -> None:
    """A late chunk is found for an id that a later request may have."""
    s.polled[r] = s.old.polled[r]


@mutant(
    "free_request",
    breaks="only_a_live_request_is_polled_for_or_has_a_chunk",
    corpus=["A28"],
    features=["chunks"],
    sizes=(1, 1, 1),
)
def a_poll_entry_comes_back_after_clean_up(s: State, r: Request) -> None:
    """The poll loop puts back an entry that the clean-up had removed."""
    s.polled[r] = True


@mutant(
    "chunk_arrives", breaks="a_request_that_waits_for_a_chunk_is_polled_for", corpus=["A30"], sizes=(1, 1, 1)
)
def a_dropped_chunk_is_not_polled_for_again(s: State, r: Request) -> None:
    """A chunk that failed on the way is dropped without a word."""
    s.chunk_ready[r] = False


@mutant(
    "give_up_on_chunk",
    breaks="a_request_eventually_leaves_the_wait_for_a_chunk",
    corpus=["A32", "A33"],
    sizes=(1, 1, 1),
    unfair=True,
)
def no_deadline_for_a_chunk(s: State, r: Request) -> None:
    """A request waits for a chunk for ever when its sender is gone."""


@mutant(
    "resume_with_chunk", breaks="requests_that_stay_waiting_keep_their_order", corpus=["A37"], sizes=(2, 1, 1)
)
def a_chunk_waiter_goes_to_the_tail(s: State, r: Request) -> None:
    """Requests parked for a chunk are put back behind everybody."""
    s.before[:, :] = lambda x, y: ite(
        y == r, s.old.in_waiting[x] & s.old.in_waiting[r] & (x != r), s.old.before[x, y] & (x != r)
    )


@mutant(
    "trigger_handoff",
    breaks="a_request_is_handed_off_at_most_once",
    drop=["once per incarnation"],
    sizes=(1, 1, 1),
)
def a_trigger_fires_again(s: State, r: Request, snapshot: Any) -> None:
    """The once-mark is not looked at."""


@mutant(
    "abort_request",
    breaks="a_request_that_ended_badly_is_not_waiting_to_be_shipped",
    corpus=["A2"],
    features=["handoff"],
    sizes=(1, 1, 1),
)
def an_aborted_request_is_shipped(s: State, r: Request, hold: bool) -> None:
    """The pending shipment of an aborted request is not cancelled."""
    for record in (s.pinned, s.remote):
        record[r, Kind.HANDOFF, :] = lambda b, record=record: ite(
            s.old.transfer[r, Kind.HANDOFF] == Transfer.NEEDED, s.old.table[r, b], record[r, Kind.HANDOFF, b]
        )
    s.transfer[r, Kind.HANDOFF] = s.old.transfer[r, Kind.HANDOFF]


@mutant(
    "stop_request",
    breaks="a_request_that_ends_normally_is_handed_off",
    corpus=["A7", "A13"],
    features=["handoff"],
    sizes=(1, 1, 1),
)
def a_normal_end_is_not_shipped(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """The hand-off of a request that ends normally is forgotten."""
    s.handoffs[r] = s.old.handoffs[r]
    forget_transfer(s, r, Kind.HANDOFF)
    s.remote[r, Kind.HANDOFF, :] = False
