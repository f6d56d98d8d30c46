"""Defects of the vLLM scheduler and its connectors, as variants of the specification."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.spec.lang.build import Expr, State, every, exists, forall, ite
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    UNFINISHED,
    Block,
    Flight,
    Kind,
    Request,
    Row,
    Status,
    Transfer,
    pool_blocks,
)
from vllm_lifecycle.spec.mutants.mutant import mutant

TOUCHED = "a_free_block_is_not_touched_by_a_transfer"


def forget_transfer(s: State, r: Expr, kind: Kind) -> None:
    """The scheduler's record of a transfer is dropped and its blocks go back to the pool; the other side knows nothing."""
    s.transfer[r, kind] = Transfer.NONE
    s.pinned[r, kind, :] = False
    do.settle(s)


@mutant("receive_completes", breaks=TOUCHED, corpus=["VLLM-46240"], features=["send"])
def first_completion_frees_everything(s: State, r: Request) -> None:
    """One bit of hold per request: with a receive and a send outstanding, the receive's completion frees all blocks."""
    forget_transfer(s, r, Kind.SEND)


@mutant("send_completes", breaks=TOUCHED, corpus=["VLLM-46240"], features=["load"])
def send_completion_frees_blocks_under_a_receive(s: State, r: Request) -> None:
    """One bit of hold per request: the send's completion frees blocks that a remote writer still fills."""
    forget_transfer(s, r, Kind.RECEIVE)


@mutant("abort_request", breaks=TOUCHED, corpus=["VLLM-32255"], features=["load"])
def abort_frees_receiving_blocks(s: State, r: Request, hold: bool) -> None:
    """Abort during an asynchronous load frees the destination blocks at once."""
    forget_transfer(s, r, Kind.RECEIVE)


@mutant(
    "abort_request",
    breaks="a_finished_request_with_no_wait_has_no_transfer",
    corpus=["VLLM-32255"],
    features=["load"],
)
def abort_waits_for_a_receive_that_is_over(s: State, r: Request, hold: bool) -> None:
    """Abort always delays the free: after the load has reported, no report will come any more."""
    s.transfer[r, Kind.RECEIVE] = s.old.transfer[r, Kind.RECEIVE]


@mutant("refuse_unmatched_report", breaks="the_engine_survives_every_breach", corpus=["VLLM-43226"])
def unmatched_report_kills_the_engine(s: State, r: Request, kind: Kind) -> None:
    """A completion for an id that is not tracked trips an assertion."""
    s.alive = s.alive & (s.status[r] != Status.FREED)


@mutant("refuse_unmatched_report", breaks="the_engine_survives_every_breach", corpus=["VLLM-26929"])
def early_send_report_kills_the_engine(s: State, r: Request, kind: Kind) -> None:
    """A send lease expires before the request finished: the report trips an assertion."""
    s.alive = s.alive & ~(every(kind == Kind.SEND) & do.is_unfinished(s, r))


@mutant("stop_request", breaks="a_free_block_is_not_touched_by_a_step", corpus=["VLLM-45357"])
def stop_frees_blocks_under_a_later_step(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """Blocks are freed at stop while a later step, already dispatched, still writes them."""
    s.free[:] = lambda b: s.free[b] | s.old.table[r, b]


@mutant("abort_request", breaks="a_free_block_is_not_touched_by_a_step", corpus=["VLLM-45357"])
def abort_frees_blocks_under_a_step(s: State, r: Request, hold: bool) -> None:
    """An abort between dispatch and answer frees blocks that the step still writes."""
    s.free[:] = lambda b: s.free[b] | s.old.table[r, b]


@mutant(
    "preempt_request",
    breaks="a_fruitless_preemption_is_not_repeated",
    corpus=["VLLM-49674"],
    drop=["a preemption that gains nothing is not repeated"],
    sizes=(2, 2, 2),
)
def preemption_goes_on_without_gain(s: State, r: Request) -> None:
    """With deferred frees a victim gives nothing back now, so the pass preempts everybody."""


@mutant("abort_request", breaks="a_free_block_is_in_the_free_list_once", corpus=["VLLM-42571"])
def a_block_freed_twice_is_listed_twice(s: State, r: Request, hold: bool) -> None:
    """A block that stands twice in one free call enters the free list twice."""
    s.listed[:] = lambda b: ite(s.free[b] & ~s.old.free[b], 2, s.listed[b])


@mutant(
    "stop_request",
    breaks="a_request_finishes_once",
    corpus=["VLLM-33377"],
    drop=["only once", "a row whose tokens count"],
    features=["send"],
)
def output_is_processed_for_a_held_request(s: State, k: Any, r: Request, reason: Status, hold: bool) -> None:
    """A finished request that is held is still tracked, so an output in flight finishes it again."""
    s.require(s.old.row[k, r] != Row.NONE)
    s.require(s.old.status[r] != Status.FREED)


@mutant(
    "promote_loaded_request",
    breaks="a_request_is_announced_as_new_once",
    corpus=["VLLM-31583"],
    features=["preemption"],
    sizes=(1, 1, 1),
)
def origin_is_lost_in_the_wait_for_remote_kv(s: State, r: Request) -> None:
    """After a load the status is always WAITING, so a preempted request is announced as new again."""
    s.announced[r] = False
    s.status[r] = Status.WAITING


@mutant("refuse_full_match", breaks="the_engine_survives_every_breach", corpus=["VLLM-30320"])
def full_match_kills_the_engine(s: State, r: Request) -> None:
    """A connector that claims every token leaves none to compute, which trips an assertion."""
    s.alive = False


@mutant(
    "report_invalid_blocks",
    breaks="the_engine_survives_every_mishap",
    corpus=["VLLM-45474"],
    features=["prefix"],
    sizes=(1, 2, 1),
)
def load_failure_in_two_groups_kills_the_engine(s: State, bad: Any) -> None:
    """A block-level load failure is defined for one KV group only."""
    s.alive = s.alive & forall(Block, Block, lambda a, b: (bad[a] & bad[b]) >> (a == b))


@mutant(
    "start_receive",
    breaks="running_and_loading_requests_fit_the_slots",
    corpus=["VLLM-29877"],
    drop=["a slot is free"],
)
def loads_take_no_slot(s: State, r: Request, hits: Any, fresh: Any, first: Any) -> None:
    """The cap on sequences counts running requests only."""


@mutant(
    "start_receive",
    "admit_request",
    breaks="something_that_fits_is_eventually_scheduled",
    corpus=["VLLM-45388"],
    features=["send"],
    drop=["its whole share can be promised"],
    sizes=(2, 2, 1),
)
def a_load_is_admitted_by_its_first_blocks(s: State, *params: Any) -> None:
    """A load is admitted if its own blocks fit, whatever earlier loads still need."""
    now = params[3] if isinstance(params[0], Request) else s.old.want[params[1]]
    s.require(s.old.used + now <= pool_blocks)


@mutant(
    "admit_holding_request",
    "admit_request",
    "start_receive",
    breaks="something_that_fits_is_eventually_scheduled",
    corpus=["VLLM-57841"],
    features=["send", "preemption"],
    sizes=(2, 2, 1),
)
def a_loaded_request_waits_behind_the_head(s: State, *params: Any) -> None:
    """One queue, and the pass ends at the first request that cannot be allocated."""
    (r,) = (p for p in params if isinstance(p, Request))
    s.require(forall(Request, lambda x: ~s.old.before[x, r]))


@mutant(
    "admit_holding_request",
    breaks="something_that_fits_is_eventually_scheduled",
    corpus=["VLLM-57104"],
    features=["send"],
    sizes=(2, 2, 1),
)
def look_ahead_is_not_reserved(s: State, k: Any, r: Request, fresh: Any, last: bool) -> None:
    """The first decode step needs a block for drafts that nobody promised."""
    s.require(s.old.used + s.old.want[r] - s.old.held[r] + 1 <= pool_blocks)


@mutant(
    "go_to_sleep",
    breaks="the_engine_is_awake_while_a_transfer_is_outstanding",
    corpus=["VLLM-43433"],
    drop=["no request is left", "no transfer is outstanding"],
    features=["send"],
)
def sleeps_while_a_report_is_awaited(s: State) -> None:
    """The idle predicate looks at unfinished requests and unsent notices only."""
    s.require(forall(Request, lambda r: ~s.old.status[r].is_in(*UNFINISHED)))


@mutant(
    "go_to_sleep", breaks="the_engine_is_awake_while_a_request_is_unfinished", drop=["no request is left"]
)
def sleeps_while_a_request_waits(s: State) -> None:
    """The idle predicate looks at running requests only."""
    s.require(forall(Request, lambda r: s.old.status[r] != Status.RUNNING))


@mutant("go_to_sleep", breaks="the_engine_is_awake_while_a_notice_is_due", drop=["no notice is due"])
def sleeps_before_the_workers_are_told(s: State) -> None:
    """The idle predicate forgets that the workers must be told of finished requests."""


@mutant(
    "complete_forced_reset",
    breaks="the_engine_survives_every_mishap",
    corpus=["VLLM-41180"],
    features=["load"],
)
def forced_reset_dies_on_held_blocks(s: State) -> None:
    """A forced reset demands that no block is held right after it preempted everybody."""
    s.alive = s.alive & forall(Block, lambda b: s.free[b])


@mutant("preempt_for_reset", breaks="a_row_awaits_no_more_than_its_request", corpus=["VLLM-46066"])
def forced_reset_keeps_rows_in_flight_current(s: State, r: Request) -> None:
    """Preemption zeroes what is awaited but rows in flight still subtract from it."""
    s.row[:, r] = lambda k: s.old.row[k, r]
    s.row_samples[:, r] = lambda k: s.old.row_samples[k, r]


@mutant(
    "preempt_request",
    breaks="an_output_is_credited_to_the_epoch_that_produced_it",
    corpus=["VLLM-46066"],
    sizes=(1, 1, 2),
)
def preemption_keeps_rows_in_flight_current(s: State, r: Request) -> None:
    """Outputs in flight at a preemption count for the epoch after it."""
    s.row[:, r] = lambda k: s.old.row[k, r]


@mutant("refuse_duplicate_request", breaks="an_id_is_given_again_only_when_it_is_free", corpus=["VLLM-15041"])
def a_duplicate_id_overwrites_its_owner(s: State, r: Request) -> None:
    """Adding an id twice overwrites the map entry of the first."""
    s.incarnation[r] = ~s.incarnation[r]
    do.set_status(s, r, Status.WAITING)


@mutant(
    "add_request",
    breaks="a_request_can_fit_an_empty_pool",
    corpus=["VLLM-39734"],
    drop=["it fits an empty pool"],
)
def an_oversized_request_is_kept_waiting(
    s: State, r: Request, prompt: Any, want: Any, resumable: bool
) -> None:
    """Nobody checks whether a request could ever fit."""


@mutant("preempt_request", breaks="a_step_being_built_has_current_rows_only", corpus=["VLLM-23347"])
def a_preempted_request_leaves_a_stale_row_in_the_pass(s: State, r: Request) -> None:
    """The victim was scheduled in this very pass, and its row stays in the output."""
    s.row[:, r] = lambda k: ite(
        (s.flight[k] == Flight.BUILDING) & (s.old.row[k, r] == Row.CURRENT), Row.DELIVERABLE, s.row[k, r]
    )


@mutant("preempt_request", breaks="only_a_live_request_has_a_current_row", corpus=["VLLM-23347"])
def a_preempted_request_stays_in_the_pass(s: State, r: Request) -> None:
    """The victim was scheduled in this very pass, and the pass schedules it all the same."""
    s.row[:, r] = lambda k: ite(s.flight[k] == Flight.BUILDING, s.old.row[k, r], s.row[k, r])


@mutant(
    "dispatch_step",
    breaks="a_pass_goes_on_after_a_preemption",
    corpus=["VLLM-26765"],
    drop=["after a preemption the pass goes on"],
    features=["preemption"],
)
def a_self_preemption_ends_the_pass(s: State, k: Any) -> None:
    """The request visited first preempts itself, and the pass ends with nothing scheduled."""


@mutant(
    "dispatch_step",
    breaks="requests_that_stay_waiting_keep_their_order",
    corpus=["VLLM-32173"],
    sizes=(2, 1, 1),
)
def skipped_requests_are_put_back_reversed(s: State, k: Any) -> None:
    """Requests skipped in a pass go back to the head one by one, which turns their order round."""
    s.before[:, :] = lambda x, y: s.old.before[y, x]


@mutant("preempt_request", breaks="only_a_running_request_has_drafts", corpus=["VLLM-30916"], sizes=(1, 1, 2))
def drafts_survive_a_preemption(s: State, r: Request) -> None:
    """A preempted request keeps draft tokens of a context that it will recompute."""
    s.drafts[r] = s.old.drafts[r]


@mutant("fail_unanswered_row", breaks="the_engine_survives_every_breach", corpus=["VLLM-46263"])
def an_unanswered_row_kills_the_engine(s: State, k: Any, r: Request) -> None:
    """A scheduled id that is missing from the worker's answer raises KeyError."""
    s.alive = False


@mutant("end_turn", breaks="a_slot_in_use_has_a_request", corpus=["VLLM-53130"], sizes=(1, 1, 1))
def a_parked_session_keeps_its_slot(s: State, k: Any, r: Request) -> None:
    """A session that waits for its client counts against max_num_seqs."""
    s.running_count = s.old.running_count


@mutant("credit_empty_output", breaks="what_is_awaited_is_in_flight", corpus=["VLLM-52693"], sizes=(1, 1, 1))
def an_empty_output_keeps_what_was_awaited(s: State, k: Any, r: Request) -> None:
    """A turn that returns no token does not release its placeholders."""
    s.placeholders[r] = s.old.placeholders[r]


@mutant(
    "end_turn",
    breaks="an_output_is_credited_to_the_epoch_that_produced_it",
    corpus=["VLLM-35755"],
    sizes=(1, 1, 2),
)
def a_new_turn_takes_the_output_of_the_last(s: State, k: Any, r: Request) -> None:
    """A turn ends while another step is in flight, whose output then counts for the next turn."""
    s.row[:, r] = lambda j: ite(s.flight[j] == Flight.DISPATCHED, s.old.row[j, r], Row.NONE)


@mutant(
    "dispatch_step",
    breaks="an_entry_that_a_step_reads_is_cached",
    corpus=["VLLM-45347"],
    features=["encoder"],
)
def an_entry_is_released_when_its_step_is_scheduled(s: State, k: Any) -> None:
    """An encoder entry becomes evictable when its step is scheduled, not when it was executed."""
    s.enc_holds[k, :] = False
    s.enc_ref[:, :] = False


@mutant("allocate_entry", breaks="a_cached_entry_is_not_to_be_dropped", corpus=["VLLM-52482"])
def a_reallocated_entry_is_still_dropped(s: State, k: Any, r: Request, e: Any) -> None:
    """An entry evicted and allocated again in one pass stays on the workers' drop list."""
    s.enc_drop[e] = s.old.enc_drop[e]


@mutant("release_entry", breaks="a_cached_entry_counts_against_the_budget", corpus=["VLLM-55733"])
def the_budget_grows_with_every_release(s: State, r: Request, e: Any) -> None:
    """Releasing an entry gives its budget back, while the entry stays in the cache."""
    s.enc_used = s.enc_used - 1


@mutant(
    "abort_request",
    breaks="the_engine_survives_every_end_of_a_request",
    corpus=["VLLM-49146"],
    sizes=(1, 1, 1),
)
def request_finished_needs_blocks(s: State, r: Request, hold: bool) -> None:
    """A connector that assumes an allocation dies when a request ends before it had any block."""
    s.alive = s.alive & exists(Block, lambda b: s.old.table[r, b])


@mutant("abort_finished_request", breaks=TOUCHED, corpus=["VLLM-25067"], features=["send"])
def aborting_a_held_request_frees_its_blocks(s: State, r: Request) -> None:
    """An abort that comes after the finish frees blocks that are held for a send."""
    forget_transfer(s, r, Kind.SEND)
