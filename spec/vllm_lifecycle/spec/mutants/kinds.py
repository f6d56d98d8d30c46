"""Further kinds of defect, so that each property has somebody who breaks it."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.spec.lang.build import State, ite
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Kind,
    Party,
    Request,
    Row,
    Status,
    Transfer,
    pool_blocks,
)
from vllm_lifecycle.spec.mutants.mutant import mutant


@mutant("preempt_request", breaks="a_block_that_is_not_free_has_a_holder")
def preemption_leaks_its_blocks(s: State, r: Request) -> None:
    """A preempted request's blocks never return to the free pool."""
    s.free[:] = lambda b: s.old.free[b]


@mutant("abort_request", breaks="a_free_block_is_in_no_table", sizes=(2, 2, 1), features=["prefix"])
def abort_frees_shared_blocks(s: State, r: Request, hold: bool) -> None:
    """Blocks shared by a prefix hit are freed with the first of their requests."""
    s.free[:] = lambda b: s.free[b] | s.old.table[r, b]


@mutant("abort_request", breaks="a_held_block_is_not_in_the_free_list", features=["load"])
def the_free_list_takes_pinned_blocks(s: State, r: Request, hold: bool) -> None:
    """Blocks enter the free list although a transfer holds them."""
    s.listed[:] = lambda b: ite(s.old.table[r, b], 1, s.listed[b])


@mutant("stop_request", breaks="a_request_that_is_gone_has_no_block_table")
def a_stopped_request_keeps_its_table(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """The table outlives its request."""
    s.table[r, :] = lambda b: s.old.table[r, b]


@mutant(
    "retry_failed_load", breaks="a_waiting_request_without_loaded_kv_has_no_block_table", features=["load"]
)
def a_failed_load_keeps_its_blocks(s: State, r: Request) -> None:
    """After a failed load the request waits again, with blocks that nobody will fill."""
    s.table[r, :] = lambda b: s.old.table[r, b]


@mutant("send_completes", breaks="only_an_outstanding_transfer_pins_blocks")
def a_completed_send_keeps_its_pin(s: State, r: Request) -> None:
    """The report is noted but the hold is not released."""
    s.pinned[r, Kind.SEND, :] = lambda b: s.old.pinned[r, Kind.SEND, b]


@mutant("receive_output", breaks="only_a_dispatched_step_holds_blocks", sizes=(1, 1, 1))
def an_answered_step_keeps_its_blocks(s: State, k: Any) -> None:
    """Deferred frees are never drained."""
    s.step_holds[k, :] = lambda b: s.old.step_holds[k, b]


@mutant(
    "free_request",
    breaks="an_outstanding_transfer_belongs_to_a_tracked_request",
    corpus=["VLLM-15041"],
    drop=["no transfer of this incarnation is outstanding"],
    features=["send"],
    sizes=(1, 1, 1),
)
def an_id_is_free_while_its_blocks_are_sent(s: State, r: Request) -> None:
    """The id can be used again while the last owner's blocks are still being sent."""


@mutant(
    "trigger_handoff",
    breaks="only_a_finished_request_sends",
    sizes=(1, 1, 1),
)
def a_running_request_is_sent(s: State, r: Request, snapshot: Any) -> None:
    """A send begins before the request has finished."""
    s.transfer[r, Kind.SEND] = Transfer.ACTIVE


@mutant(
    "receive_fails",
    breaks="a_request_that_waits_for_remote_kv_has_a_receive",
    features=["load"],
    sizes=(1, 1, 1),
)
def a_failed_load_is_forgotten(s: State, r: Request) -> None:
    """The failure is consumed without a word to the request that waits."""
    s.transfer[r, Kind.RECEIVE] = Transfer.NONE


@mutant("preempt_request", breaks="a_request_is_in_one_queue_only", sizes=(1, 1, 1))
def a_preempted_request_stays_in_the_running_list(s: State, r: Request) -> None:
    """A request is put back to the waiting queue without leaving the running list."""
    s.in_running[r] = True


@mutant("admit_request", breaks="a_running_request_is_in_the_running_list", sizes=(1, 1, 1))
def an_admitted_request_is_in_no_list(
    s: State, k: Any, r: Request, hits: Any, fresh: Any, last: bool
) -> None:
    """The request runs but the next pass does not find it."""
    s.in_running[r] = False


@mutant("preempt_for_reset", breaks="an_unfinished_request_is_in_a_queue", sizes=(1, 1, 1))
def a_reset_forgets_whom_it_preempts(s: State, r: Request) -> None:
    """A preempted request is put back into no queue."""
    s.in_waiting[r] = False


@mutant("dispatch_step", breaks="the_waiting_order_has_no_cycle", sizes=(2, 1, 1))
def everybody_is_ahead_of_everybody(s: State, k: Any) -> None:
    """The order of skipped requests is merged instead of kept."""
    s.before[:, :] = lambda x, y: s.old.before[x, y] | s.old.before[y, x]


@mutant("admit_request", breaks="only_an_announced_request_takes_part_in_a_step", sizes=(1, 1, 1))
def an_admitted_request_is_not_announced(
    s: State, k: Any, r: Request, hits: Any, fresh: Any, last: bool
) -> None:
    """A worker is asked to run a request that it does not know."""
    s.announced[r] = False


@mutant("preempt_request", breaks="a_cached_block_has_its_content", features=["prefix"], sizes=(1, 2, 1))
def a_preemption_leaves_promised_blocks_cached(s: State, r: Request) -> None:
    """A victim scheduled in this pass leaves blocks in the prefix cache that nobody will compute."""
    s.cached[:] = lambda b: s.old.cached[b]


@mutant(
    "receive_completes_in_part",
    breaks="a_cached_block_has_its_content",
    features=["load", "prefix"],
    sizes=(1, 2, 1),
)
def blocks_that_did_not_come_whole_are_cached(s: State, r: Request, bad: Any) -> None:
    """A partly failed load enters all its blocks in the prefix cache."""
    s.cached[:] = lambda b: s.old.cached[b] | s.old.pinned[r, Kind.RECEIVE, b]


@mutant(
    "credit_output",
    breaks="a_running_request_with_nothing_in_flight_has_a_token_to_compute",
    sizes=(1, 1, 1),
    constants={"max_tokens": 4},
)
def refused_drafts_are_not_rolled_back(s: State, k: Any, r: Request, accepted: Any, drafted: bool) -> None:
    """Computed tokens keep counting drafts that the model refused."""
    s.computed[r] = s.old.computed[r]


@mutant("preempt_for_reset", breaks="only_a_running_request_awaits_output", sizes=(1, 1, 1))
def a_reset_keeps_what_was_awaited(s: State, r: Request) -> None:
    """A preempted request still awaits outputs that will be dropped."""
    s.placeholders[r] = s.old.placeholders[r]


@mutant(
    "start_receive",
    breaks="what_is_in_use_was_promised",
    drop=["its whole share can be promised"],
    sizes=(2, 3, 1),
)
def more_is_promised_than_there_is(s: State, r: Request, hits: Any, fresh: Any, first: Any) -> None:
    """Loads are admitted beyond what the pool can ever give."""
    s.require(s.old.used + first <= pool_blocks)


@mutant("refuse_unmatched_report", breaks="a_breach_is_blamed_on_its_party")
def a_late_report_is_swallowed(s: State, r: Request, kind: Kind) -> None:
    """An unmatched report is ignored without a trace."""
    s.blamed[Party.CONNECTOR] = False


@mutant("receive_fails", breaks="nobody_is_blamed_without_a_breach", features=["load"], sizes=(1, 1, 1))
def a_failed_load_is_blamed(s: State, r: Request) -> None:
    """A load failure, which the contract allows, is counted as a breach."""
    s.blamed[Party.CONNECTOR] = True


@mutant(
    "stop_request",
    breaks="a_final_status_is_final",
    drop=["only once", "a row whose tokens count"],
    features=["send"],
)
def a_stop_overwrites_a_final_status(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """An output in flight overwrites the reason of a request that was aborted."""
    s.require(s.old.row[k, r] != Row.NONE)
    s.status[r] = reason


@mutant("evict_entry", breaks="an_entry_that_a_request_needs_is_cached", drop=["no request needs it"])
def an_entry_in_need_is_evicted(s: State, e: Any) -> None:
    """Eviction looks at steps only."""


@mutant(
    "abort_request",
    breaks="a_transfer_ends_only_when_nobody_touches_its_blocks",
    features=["load"],
    sizes=(1, 1, 1),
)
def an_abort_drops_custody_of_a_load(s: State, r: Request, hold: bool) -> None:
    """The record of who touches the blocks goes with the request."""
    s.pinned[r, Kind.RECEIVE, :] = False


@mutant(
    "credit_empty_output",
    breaks="no_more_is_computed_than_known_or_awaited",
    corpus=["VLLM-52693"],
    sizes=(1, 1, 1),
    constants={"max_tokens": 4},
)
def an_empty_output_is_not_rolled_back(s: State, k: Any, r: Request) -> None:
    """Tokens that were awaited and did not come still count as computed."""
    s.computed[r] = s.old.computed[r]


@mutant("send_completes", breaks="a_finished_request_is_eventually_freed", sizes=(1, 1, 1), unfair=True)
def a_send_is_never_reported(s: State, r: Request) -> None:
    """The acknowledgement of a send goes missing, and nothing else ends the hold."""


@mutant("ship_handoff", breaks="a_transfer_is_eventually_over", sizes=(1, 1, 1), unfair=True)
def a_handoff_is_never_shipped(s: State, r: Request) -> None:
    """A pass may put off the shipment for ever."""


@mutant("receive_output", breaks="a_dispatched_step_is_eventually_processed", sizes=(1, 1, 1), unfair=True)
def a_step_is_never_answered(s: State, k: Any) -> None:
    """A worker hangs and nobody notices."""


@mutant(
    "promote_loaded_request",
    breaks="a_request_eventually_leaves_the_wait_for_remote_kv",
    features=["send"],
    sizes=(1, 1, 1),
    unfair=True,
)
def a_loaded_request_is_never_looked_at(s: State, r: Request) -> None:
    """Passes never get to see that a load is done."""


@mutant(
    "grammar_ready",
    breaks="a_request_eventually_leaves_the_wait_for_its_grammar",
    sizes=(1, 1, 1),
    unfair=True,
)
def a_compiled_grammar_is_never_looked_at(s: State, r: Request) -> None:
    """Passes never get to see that a grammar is compiled."""
