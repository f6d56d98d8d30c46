"""Safety: what is never the case, each claim a sentence, each with its interesting case that must be reachable.

`ids` are the names of the defect catalogues: P1-P12 for the vLLM scheduler, PIN ... NOCRASH for the omni AR scheduler. Rows
with `lemma=True` say how the scheduler's bookkeeping fits together; the proof needs them, and they are checked like the rest.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, Implication, State, always, every, exists, ite, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.scheduling import something_can_run
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    FINISHED,
    GONE,
    OUTSTANDING,
    OVER,
    Block,
    Entry,
    Flight,
    Kind,
    Party,
    Phase,
    Request,
    Row,
    Status,
    Step,
    Transfer,
    encoder_budget,
    handoff_stage,
    max_num_seqs,
    max_tokens,
    pool_blocks,
    spec,
)

# custody


@spec.safety(ids=("P1", "PIN", "HOLD"))
def a_free_block_is_not_touched_by_a_transfer(s: State, b: Block, r: Request, kind: Kind) -> Implication:
    """No block is in the free pool while a remote party may still read or write it."""
    return when(s.remote[r, kind, b]).then(~s.free[b])


@spec.safety(ids=("P1",))
def a_free_block_is_not_touched_by_a_step(s: State, b: Block, k: Step) -> Implication:
    """No block is in the free pool while a dispatched step may still read or write it."""
    return when(s.running_step[k, b]).then(~s.free[b])


@spec.safety(ids=("P1", "P11"))
def a_free_block_is_in_no_table(s: State, b: Block, r: Request) -> Implication:
    """No block is in the free pool while a request has it in its block table."""
    return when(s.table[r, b]).then(~s.free[b])


@spec.safety(ids=("P2", "DRAIN"))
def a_block_that_is_not_free_has_a_holder(s: State, b: Block) -> Implication:
    """No block leaks: one that is not in the free pool is in a table, pinned by a transfer, or held by a step."""
    return when(~s.free[b]).then(do.is_held(s, b))


@spec.safety(ids=("P11",))
def a_free_block_is_in_the_free_list_once(s: State, b: Block) -> Implication:
    """The free list has every free block exactly once."""
    return when(s.free[b]).then(s.listed[b] == 1)


@spec.safety(ids=("P11",))
def a_held_block_is_not_in_the_free_list(s: State, b: Block) -> Implication:
    """The free list has no block that is held."""
    return when(~s.free[b]).then(s.listed[b] == 0)


@spec.safety(ids=("P4", "ABSORB"))
def a_request_that_is_gone_has_no_block_table(s: State, r: Request, b: Block) -> Implication:
    """A finished, held or freed request has given its table back; only transfers and steps may still hold its blocks."""
    return when(s.status[r].is_in(*GONE)).then(~s.table[r, b])


@spec.safety(ids=("P2", "P4"))
def a_waiting_request_without_loaded_kv_has_no_block_table(s: State, r: Request, b: Block) -> Implication:
    """Only a request that was loaded, or keeps its last turn, holds blocks while it waits."""
    return when(
        s.status[r].is_in(
            Status.WAITING, Status.PREEMPTED, Status.WAITING_FOR_GRAMMAR, Status.WAITING_FOR_CHUNK
        ),
        ~s.kv_holding[r],
        ~s.parked_running[r],
    ).then(~s.table[r, b])


@spec.safety(ids=("P4",), lemma=True)
def an_idle_session_keeps_its_kv(s: State, r: Request) -> Implication:
    """A session that waits for its client holds its computed blocks."""
    return when(s.status[r] == Status.WAITING_FOR_STREAMING_REQ).then(s.kv_holding[r])


@spec.safety(ids=("P1",), lemma=True)
def what_a_remote_party_touches_is_pinned(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """The scheduler's record of transfers covers the truth."""
    return when(s.remote[r, kind, b]).then(s.pinned[r, kind, b])


@spec.safety(ids=("P1",), lemma=True)
def what_a_worker_touches_is_held_by_its_step(s: State, k: Step, b: Block) -> Implication:
    """The scheduler's record of steps covers the truth."""
    return when(s.running_step[k, b]).then(s.step_holds[k, b])


@spec.safety(ids=("PIN",), lemma=True)
def a_pinned_block_is_not_free(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """A transfer's record keeps the block out of the free pool."""
    return when(s.pinned[r, kind, b]).then(~s.free[b])


@spec.safety(ids=("P1",), lemma=True)
def a_block_held_by_a_step_is_not_free(s: State, k: Step, b: Block) -> Implication:
    """A step's record keeps the block out of the free pool."""
    return when(s.step_holds[k, b]).then(~s.free[b])


@spec.safety(ids=("P2", "DRAIN", "SETS"))
def only_an_outstanding_transfer_pins_blocks(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """A transfer that is over, or never began, holds nothing."""
    return when(s.pinned[r, kind, b]).then(s.transfer[r, kind].is_in(*OUTSTANDING))


@spec.safety(ids=("P2",))
def only_a_dispatched_step_holds_blocks(s: State, k: Step, b: Block) -> Implication:
    """A step that is answered, or not yet dispatched, holds nothing."""
    return when(s.step_holds[k, b]).then(s.flight[k] == Flight.DISPATCHED)


# transfers


@spec.safety(ids=("P9", "SETS"))
def an_outstanding_transfer_belongs_to_a_tracked_request(s: State, r: Request, kind: Kind) -> Implication:
    """The id of a request stays in use until its last transfer is over."""
    return when(s.transfer[r, kind].is_in(*OUTSTANDING)).then(s.status[r] != Status.FREED)


@spec.safety(ids=("P4",), lemma=True)
def a_finished_request_with_no_wait_has_no_transfer(s: State, r: Request, kind: Kind) -> Implication:
    """A finished request with a transfer outstanding is in WAITING_FOR_TRANSFER_FREE, not in FINISHED_*."""
    return when(s.status[r].is_in(*FINISHED)).then(s.transfer[r, kind] == Transfer.NONE)


@spec.safety(ids=("P3",))
def only_a_finished_request_sends(s: State, r: Request) -> Implication:
    """A connector sends a request's blocks only after it has finished."""
    return when(s.transfer[r, Kind.SEND] != Transfer.NONE).then(
        s.status[r] == Status.WAITING_FOR_TRANSFER_FREE
    )


@spec.safety(ids=("P3", "P4"))
def a_request_that_waits_for_remote_kv_has_a_receive(s: State, r: Request) -> Implication:
    """Nobody waits for a transfer that does not exist."""
    return when(s.status[r] == Status.WAITING_FOR_REMOTE_KVS).then(
        s.transfer[r, Kind.RECEIVE] != Transfer.NONE
    )


@spec.safety(ids=("P3", "P4"), lemma=True)
def a_receive_belongs_to_a_request_that_waits_for_it_or_ended(s: State, r: Request) -> Implication:
    """A receive is consumed before its request runs, or outlives it."""
    return when(s.transfer[r, Kind.RECEIVE] != Transfer.NONE).then(
        s.status[r].is_in(Status.WAITING_FOR_REMOTE_KVS, Status.WAITING_FOR_TRANSFER_FREE)
    )


@spec.safety(ids=("P3",), lemma=True)
def a_receive_is_never_merely_needed(s: State, r: Request) -> Implication:
    """A receive starts at once."""
    return when(s.transfer[r, Kind.RECEIVE] != Transfer.NONE).then(
        s.transfer[r, Kind.RECEIVE] != Transfer.NEEDED
    )


@spec.safety(ids=("P3",), lemma=True)
def a_receive_outcome_belongs_to_a_request_that_still_waits(s: State, r: Request) -> Implication:
    """The outcome of a receive is kept only for a request that waits for it."""
    return when(s.transfer[r, Kind.RECEIVE].is_in(Transfer.DONE, Transfer.FAILED)).then(
        s.status[r] == Status.WAITING_FOR_REMOTE_KVS
    )


@spec.safety(ids=("DRAIN",), lemma=True)
def a_send_or_handoff_has_no_outcome_to_keep(s: State, r: Request, kind: Kind) -> Implication:
    """Only receives have an outcome that the request needs later."""
    return when(s.transfer[r, kind].is_in(Transfer.DONE, Transfer.FAILED)).then(kind == Kind.RECEIVE)


@spec.safety(ids=("DRAIN",), lemma=True)
def a_send_starts_at_once(s: State, r: Request) -> Implication:
    """A send is active as soon as the request has finished."""
    return when(s.transfer[r, Kind.SEND] != Transfer.NONE).then(s.transfer[r, Kind.SEND] != Transfer.NEEDED)


# hand-off


@spec.safety(ids=("ONCE",))
def a_request_is_handed_off_at_most_once(s: State, r: Request) -> Implication:
    """One hand-off per incarnation."""
    return when(s.handoffs[r] >= 1).then(s.handoffs[r] == 1)


@spec.safety(ids=("ONCE",))
def a_request_that_ended_badly_is_not_waiting_to_be_shipped(s: State, r: Request) -> Implication:
    """An aborted or failed request is not shipped any more."""
    return when(s.ended_badly[r]).then(s.transfer[r, Kind.HANDOFF] != Transfer.NEEDED)


@spec.safety(ids=("SETS",))
def a_trigger_mark_belongs_to_a_live_request(s: State, r: Request) -> Implication:
    """The once-mark of a hand-off goes with its incarnation."""
    return when(s.triggered[r]).then(do.is_unfinished(s, r))


@spec.safety(ids=("ONCE",), lemma=True)
def a_trigger_mark_counts_one_handoff(s: State, r: Request) -> Implication:
    """The once-mark is set exactly by a hand-off."""
    return when(s.triggered[r]).then(s.handoffs[r] == 1)


@spec.safety(ids=("ONCE",), lemma=True)
def an_unfinished_request_without_mark_was_not_handed_off(s: State, r: Request) -> Implication:
    """No hand-off without the once-mark while the request lives."""
    return when(do.is_unfinished(s, r), ~s.triggered[r]).then(
        (s.handoffs[r] == 0) & (s.transfer[r, Kind.HANDOFF] == Transfer.NONE)
    )


@spec.safety(ids=("ONCE",), lemma=True)
def a_live_request_did_not_end_badly(s: State, r: Request) -> Implication:
    """The mark of a bad end goes with its incarnation."""
    return when(s.ended_badly[r]).then(s.status[r].is_in(*OVER))


@spec.safety(ids=("ONCE",))
def the_output_carries_the_parameters_of_every_transfer(s: State, r: Request, kind: Kind) -> Implication:
    """Parameters that a connector or a hand-off made for the client reach the final output."""
    return when(s.params_made[r, kind]).then(s.output_params[r, kind])


# queues and statuses


@spec.safety(ids=("P4", "QUEUE"))
def a_request_is_in_one_queue_only(s: State, r: Request) -> Implication:
    """Nobody is in the running list and in a waiting queue at once."""
    return when(s.in_running[r]).then(~s.in_waiting[r])


@spec.safety(ids=("P4", "QUEUE"))
def a_running_request_is_in_the_running_list(s: State, r: Request) -> Implication:
    """RUNNING, or parked there for a chunk, means membership of the running list."""
    return when(do.has_slot(s, r)).then(s.in_running[r])


@spec.safety(ids=("P4", "QUEUE"))
def a_request_in_the_running_list_runs(s: State, r: Request) -> Implication:
    """Membership of the running list means RUNNING, or parked there for a chunk."""
    return when(s.in_running[r]).then(do.has_slot(s, r))


@spec.safety(ids=("P4", "QUEUE"))
def an_unfinished_request_is_in_a_queue(s: State, r: Request) -> Implication:
    """No unfinished request is forgotten."""
    return when(do.is_unfinished(s, r)).then(s.in_running[r] | s.in_waiting[r])


@spec.safety(ids=("ABSORB", "QUEUE"))
def a_finished_request_is_in_no_queue(s: State, r: Request) -> Implication:
    """A finished, held or freed request is in no queue."""
    return when(s.status[r].is_in(*GONE)).then(~s.in_running[r] & ~s.in_waiting[r])


@spec.safety(ids=("P4",), lemma=True)
def only_a_request_that_waits_holds_kv_without_running(s: State, r: Request) -> Implication:
    """The mark of a waiting request with a table is on waiting requests only."""
    return when(s.kv_holding[r]).then(
        s.status[r].is_in(Status.WAITING, Status.PREEMPTED, Status.WAITING_FOR_STREAMING_REQ)
    )


@spec.safety(ids=("QUEUE",), lemma=True)
def only_a_request_that_waits_for_a_chunk_is_parked(s: State, r: Request) -> Implication:
    """The mark of a parked running request is on requests that wait for a chunk."""
    return when(s.parked_running[r]).then(s.status[r] == Status.WAITING_FOR_CHUNK)


@spec.safety(ids=("P12",), lemma=True)
def only_waiting_requests_have_an_order(s: State, r: Request, x: Request) -> Implication:
    """The waiting order is on members of the waiting queue."""
    return when(s.before[r, x]).then(s.in_waiting[r] & s.in_waiting[x])


@spec.safety(ids=("P12",))
def the_waiting_order_has_no_cycle(s: State, r: Request, x: Request) -> Implication:
    """Of two waiting requests at most one is ahead of the other, and nobody is ahead of itself."""
    return when(s.before[r, x]).then(~s.before[x, r])


@spec.safety(ids=("SETS",))
def only_a_live_request_is_polled_for_or_has_a_chunk(s: State, r: Request) -> Implication:
    """The chunk adapter polls for, and keeps chunks of, requests that live; a late chunk is never another's."""
    return when(s.polled[r] | s.chunk_ready[r]).then(do.is_unfinished(s, r))


@spec.safety(ids=("PROGRESS",))
def a_request_that_waits_for_a_chunk_is_polled_for(s: State, r: Request) -> Implication:
    """Whoever waits for a chunk has one, or is polled for."""
    return when(s.status[r] == Status.WAITING_FOR_CHUNK).then(s.polled[r] | s.chunk_ready[r])


# steps


@spec.safety(ids=("P4", "P10"))
def only_a_live_request_has_a_current_row(s: State, k: Step, r: Request) -> Implication:
    """A request that is not running (or parked in the running list) takes part in no step as of now."""
    return when(s.row[k, r] == Row.CURRENT).then(do.has_slot(s, r))


@spec.safety(ids=("P6",))
def an_output_is_credited_to_the_epoch_that_produced_it(s: State, k: Step, r: Request) -> Implication:
    """No row of a former epoch or incarnation counts as current."""
    return when(s.epoch_over[k, r]).then(s.row[k, r] != Row.CURRENT)


@spec.safety(ids=("P6", "P4"), lemma=True)
def only_a_preempted_request_has_output_to_deliver(s: State, k: Step, r: Request) -> Implication:
    """Tokens of the last run go to the request that was preempted, not to a successor."""
    return when(s.row[k, r] == Row.DELIVERABLE).then(s.status[r] == Status.PREEMPTED)


@spec.safety(ids=("P10",), lemma=True)
def an_idle_step_has_no_row(s: State, k: Step, r: Request) -> Implication:
    """A step that is over has no part left."""
    return when(s.row[k, r] != Row.NONE).then(s.flight[k] != Flight.IDLE)


@spec.safety(ids=("P4", "P10"))
def a_step_being_built_has_current_rows_only(s: State, k: Step, r: Request) -> Implication:
    """A request preempted in a pass is in no part of that pass's step."""
    return when(s.flight[k] == Flight.BUILDING).then(s.row[k, r].is_in(Row.NONE, Row.CURRENT))


@spec.safety(ids=("P10",), lemma=True)
def a_step_is_built_in_a_pass(s: State, k: Step) -> Implication:
    """A step is being built only inside `schedule()`."""
    return when(s.flight[k] == Flight.BUILDING).then(s.phase == Phase.SCHEDULING)


@spec.safety(ids=("P10",), lemma=True)
def a_step_is_processed_in_an_update(s: State, k: Step) -> Implication:
    """A step's output is being processed only inside `update_from_output()`."""
    return when(s.flight[k] == Flight.ANSWERED).then(s.phase == Phase.UPDATING)


@spec.safety(ids=("P10",), lemma=True)
def a_pass_builds_a_step(s: State) -> Implication:
    """Inside `schedule()` some step is being built."""
    return when(s.phase == Phase.SCHEDULING).then(exists(Step, lambda k: s.flight[k] == Flight.BUILDING))


@spec.safety(ids=("P10",), lemma=True)
def a_request_scheduled_in_this_pass_runs(s: State, k: Step, r: Request) -> Implication:
    """Whoever takes part in the step being built is RUNNING, not merely parked."""
    return when(s.flight[k] == Flight.BUILDING, s.row[k, r] == Row.CURRENT).then(
        s.status[r] == Status.RUNNING
    )


@spec.safety(ids=("P10",), lemma=True)
def one_call_handles_one_step(s: State, k: Step, j: Step) -> Implication:
    """At most one step is being built or processed."""
    return when(
        s.flight[k].is_in(Flight.BUILDING, Flight.ANSWERED),
        s.flight[j].is_in(Flight.BUILDING, Flight.ANSWERED),
    ).then(k == j)


@spec.safety(ids=("P10",))
def only_an_announced_request_takes_part_in_a_step(s: State, k: Step, r: Request) -> Implication:
    """A worker knows every request that it is asked to run."""
    return when(s.row[k, r] == Row.CURRENT).then(s.announced[r])


@spec.safety(ids=("P10",))
def a_request_is_announced_as_new_once(s: State, r: Request) -> Implication:
    """A worker hears of an incarnation as new exactly once; afterwards it resumes."""
    return when(s.told_new[r] >= 1).then(s.told_new[r] == 1)


@spec.safety(ids=("P10",), lemma=True)
def an_announcement_was_made_once(s: State, r: Request) -> Implication:
    """The announcement mark is set exactly by an announcement."""
    return when(s.announced[r]).then(s.told_new[r] == 1)


@spec.safety(ids=("P10",), lemma=True)
def an_announcement_goes_with_its_request(s: State, r: Request) -> Implication:
    """A free id is not announced."""
    return when(s.announced[r]).then(s.status[r] != Status.FREED)


@spec.safety(ids=("P10",), lemma=True)
def a_request_not_announced_was_not_told(s: State, r: Request) -> Implication:
    """Without the announcement mark no worker heard of a live request."""
    return when(do.is_unfinished(s, r), ~s.announced[r]).then(s.told_new[r] == 0)


@spec.safety(ids=("P4", "P10"))
def a_request_finishes_once(s: State, r: Request) -> Implication:
    """The connector's `request_finished` is called once per incarnation."""
    return when(s.finish_hooks[r] >= 1).then(s.finish_hooks[r] == 1)


@spec.safety(ids=("P4", "P10"), lemma=True)
def a_live_request_has_not_finished_before(s: State, r: Request) -> Implication:
    """The finish hook of an incarnation was not called while it lives."""
    return when(do.is_unfinished(s, r)).then(s.finish_hooks[r] == 0)


# prefix cache


@spec.safety(ids=("P7",))
def a_cached_block_has_its_content(s: State, b: Block) -> Implication:
    """Only what was computed, loaded, or is promised by a row of this very pass can be found in the prefix cache."""
    return when(s.cached[b]).then(s.content[b] | exists(Request, lambda r: s.promised[r, b]))


@spec.safety(ids=("P7",), lemma=True)
def a_promise_is_kept_by_a_request_that_has_the_block(s: State, r: Request, b: Block) -> Implication:
    """Whoever promised a block's content has the block, runs, and is in a pass."""
    return when(s.promised[r, b]).then(
        s.table[r, b] & (s.phase == Phase.SCHEDULING) & (s.status[r] == Status.RUNNING)
    )


@spec.safety(ids=("P7",), lemma=True)
def a_promise_is_kept_by_the_step_being_built(s: State, r: Request, b: Block, k: Step) -> Implication:
    """The step being built has a row of whoever promised content."""
    return when(s.promised[r, b], s.flight[k] == Flight.BUILDING).then(s.row[k, r] == Row.CURRENT)


# tokens


@spec.safety(ids=("P6", "ACCT"))
def no_more_is_computed_than_known_or_awaited(s: State, r: Request) -> Implication:
    """Computed tokens are known ones, or outputs that are awaited."""
    return when(s.computed[r] >= 1).then(s.computed[r] <= s.known[r] + s.placeholders[r])


@spec.safety(ids=("P6",), lemma=True)
def a_request_that_awaits_output_has_computed_up_to_it(s: State, r: Request) -> Implication:
    """Output is awaited only from rows that computed everything known, so counters tell each other."""
    return when(s.placeholders[r] >= 1).then(
        s.computed[r] + 1 == s.known[r] + s.placeholders[r], s.known[r] + s.placeholders[r] <= max_tokens
    )


@spec.safety(ids=("P6",), lemma=True)
def an_unfinished_request_has_a_token(s: State, r: Request) -> Implication:
    """No prompt is empty."""
    return when(do.is_unfinished(s, r)).then(s.known[r] >= 1)


@spec.safety(ids=("P6",), lemma=True)
def a_request_that_is_gone_counts_no_tokens(s: State, r: Request) -> Implication:
    """Counters start afresh with each incarnation."""
    return when(s.status[r].is_in(*GONE)).then(
        (s.known[r] == 0) & (s.computed[r] == 0) & (s.placeholders[r] == 0) & (s.drafts[r] == 0)
    )


@spec.safety(ids=("P6",))
def only_a_running_request_awaits_output(s: State, r: Request) -> Implication:
    """A preempted, waiting or finished request awaits nothing: its counters start afresh."""
    return when(s.placeholders[r] >= 1).then(do.has_slot(s, r))


@spec.safety(ids=("P6", "P7"))
def only_a_running_request_has_drafts(s: State, r: Request) -> Implication:
    """Draft tokens do not survive a preemption, a turn or an end."""
    return when(s.drafts[r] >= 1).then(do.has_slot(s, r))


@spec.safety(ids=("P6",))
def a_row_awaits_no_more_than_its_request(s: State, k: Step, r: Request) -> Implication:
    """What a current row may bring is awaited by its request, so the awaited number never drops below zero."""
    return when(s.row[k, r] == Row.CURRENT).then(s.row_samples[k, r] <= s.placeholders[r])


@spec.safety(ids=("P6",), lemma=True)
def only_a_current_row_awaits_output(s: State, k: Step, r: Request) -> Implication:
    """A row that is undone, stale or processed awaits nothing."""
    return when(s.row_samples[k, r] >= 1).then(s.row[k, r] == Row.CURRENT)


# slots


@spec.safety(ids=("P11",))
def running_and_loading_requests_fit_the_slots(s: State, r: Request) -> Implication:
    """Requests that run or load never exceed max_num_seqs."""
    return when(do.has_slot(s, r) | do.is_loading(s, r)).then(
        s.running_count + s.loading_count <= max_num_seqs
    )


@spec.safety(ids=("P11", "P5"))
def a_slot_in_use_has_a_request(s: State) -> Implication:
    """No slot stays taken by a request that does not run: not by a parked session, nor by one that ended."""
    return when(s.running_count >= 1).then(exists(Request, lambda r: do.has_slot(s, r)))


# contract and survival


@spec.safety(ids=("P5", "NOCRASH"), lemma=True)
def the_engine_never_dies(s: State) -> Implication:
    """No exception leaves the scheduler."""
    return always(s.alive)


@spec.safety(ids=("P5", "NOCRASH"))
def the_engine_survives_every_breach(s: State, party: Party) -> Implication:
    """A breach of contract by client, worker or connector does not kill the engine."""
    return when(s.breached[party]).then(s.alive)


@spec.safety(ids=("P10", "P3"))
def a_breach_is_blamed_on_its_party(s: State, party: Party) -> Implication:
    """A breach is attributed to the side that made it."""
    return when(s.breached[party]).then(s.blamed[party])


@spec.safety(ids=("P10",))
def nobody_is_blamed_without_a_breach(s: State, party: Party) -> Implication:
    """Blame is for those who broke the contract."""
    return when(s.blamed[party]).then(s.breached[party])


@spec.safety(ids=("P5", "P10", "NOCRASH"))
def the_engine_survives_every_end_of_a_request(s: State, r: Request) -> Implication:
    """No way in which a request ends kills the engine, whatever blocks or transfers it had."""
    return when(s.finish_hooks[r] >= 1).then(s.alive)


@spec.safety(ids=("P8", "P2", "WAKE"))
def the_engine_is_awake_while_a_transfer_is_outstanding(s: State, r: Request, kind: Kind) -> Implication:
    """The engine loop runs, and so reads reports, while any is awaited."""
    return when(s.transfer[r, kind].is_in(*OUTSTANDING)).then(~s.asleep)


@spec.safety(ids=("P8", "WAKE"))
def the_engine_is_awake_while_a_request_is_unfinished(s: State, r: Request) -> Implication:
    """The engine loop runs while there is something to schedule."""
    return when(do.is_unfinished(s, r)).then(~s.asleep)


@spec.safety(ids=("P8",))
def the_engine_is_awake_while_a_notice_is_due(s: State, r: Request) -> Implication:
    """The engine loop runs until the workers know which requests finished."""
    return when(s.notice[r]).then(~s.asleep)


# steps of the machine


@spec.step(ids=("P4", "ABSORB"))
def a_final_status_is_final(s: State, r: Request) -> Implication:
    """A finished request only ever becomes FREED."""
    return when(s.old.status[r].is_in(*OVER)).then(
        (s.status[r] == s.old.status[r]) | (s.status[r] == Status.FREED)
    )


@spec.step(ids=("P9",))
def an_id_is_given_again_only_when_it_is_free(s: State, r: Request) -> Implication:
    """A new incarnation takes an id only after the last one, its transfers included, is gone."""
    return when(s.incarnation[r] != s.old.incarnation[r]).then(s.old.status[r] == Status.FREED)


@spec.step(ids=("P12",))
def requests_that_stay_waiting_keep_their_order(s: State, r: Request, x: Request) -> Implication:
    """Nobody who stays in the waiting queue overtakes another who stays."""
    return when(
        s.old.before[r, x],
        s.in_waiting[r],
        s.in_waiting[x],
    ).then(s.before[r, x])


@spec.step(ids=("P3", "SETS"))
def a_transfer_ends_only_when_nobody_touches_its_blocks(
    s: State, r: Request, kind: Kind, b: Block
) -> Implication:
    """Custody is not dropped while the other side may still touch the block."""
    return when(s.old.pinned[r, kind, b], ~s.pinned[r, kind, b]).then(~s.remote[r, kind, b])


@spec.step(ids=("ONCE",))
def a_request_that_ends_normally_is_handed_off(s: State, r: Request) -> Implication:
    """Where a later stage waits for it, a request that ends normally with blocks has been handed off."""
    return when(
        handoff_stage == 1,
        do.is_unfinished(s.old, r),
        s.status[r].is_in(*OVER),
        ~s.ended_badly[r],
        exists(Block, lambda b: s.old.table[r, b]),
    ).then(s.handoffs[r] == 1)


@spec.step(ids=("ONCE",))
def a_request_handed_off_at_its_end_ships_all_its_blocks(s: State, r: Request, b: Block) -> Implication:
    """Every block of every KV group is named in a hand-off that begins when the request ends."""
    return when(
        s.old.transfer[r, Kind.HANDOFF] == Transfer.NONE,
        s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED,
        s.status[r] == Status.WAITING_FOR_TRANSFER_FREE,
        s.old.table[r, b],
    ).then(s.remote[r, Kind.HANDOFF, b])


@spec.step(ids=("ONCE",))
def a_handoff_names_some_block(s: State, r: Request) -> Implication:
    """Nothing is shipped for a request that never had a block."""
    return when(
        s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED, s.old.transfer[r, Kind.HANDOFF] != Transfer.NEEDED
    ).then(exists(Block, lambda b: s.remote[r, Kind.HANDOFF, b]))


# encoder cache


@spec.safety(ids=("P1",))
def an_entry_that_a_step_reads_is_cached(s: State, k: Step, e: Entry) -> Implication:
    """No encoder entry is evicted while a dispatched step may still read it."""
    return when(s.enc_running[k, e]).then(s.enc_cached[e])


@spec.safety(ids=("P1",), lemma=True)
def an_entry_that_a_step_reads_is_held_by_it(s: State, k: Step, e: Entry) -> Implication:
    """The scheduler's record of entries in use covers the truth."""
    return when(s.enc_running[k, e]).then(s.enc_holds[k, e])


@spec.safety(ids=("P1",))
def an_entry_that_a_request_needs_is_cached(s: State, r: Request, e: Entry) -> Implication:
    """No encoder entry is evicted while a request needs it."""
    return when(s.enc_ref[r, e]).then(s.enc_cached[e])


@spec.safety(ids=("P1",))
def a_cached_entry_is_not_to_be_dropped(s: State, e: Entry) -> Implication:
    """The workers are never told to drop an entry that is in the cache."""
    return when(s.enc_drop[e]).then(~s.enc_cached[e])


@spec.safety(ids=("P11",))
def a_cached_entry_counts_against_the_budget(s: State, e: Entry) -> Implication:
    """The encoder budget never says that an occupied cache is empty."""
    return when(s.enc_cached[e]).then((s.enc_used >= 1) & (s.enc_used <= encoder_budget))


# pressure and admission


@spec.safety(ids=("P5",))
def a_fruitless_preemption_is_not_repeated(s: State) -> Implication:
    """When a preemption gave no block back at once, the pass preempts nobody else."""
    return when(s.fruitless).then(s.fruitless_count == 0)


@spec.safety(ids=("P5",), lemma=True)
def no_preemption_follows_a_fruitless_one(s: State) -> Implication:
    """The number of preemptions after a fruitless one is zero."""
    return always(s.fruitless_count == 0)


@spec.safety(ids=("P5",))
def a_request_can_fit_an_empty_pool(s: State, r: Request) -> Implication:
    """A request that could never run is not kept waiting."""
    return when(s.want[r] >= 1).then(s.want[r] <= pool_blocks)


@spec.safety(ids=("P5", "P11"))
def what_is_in_use_was_promised(s: State, r: Request) -> Implication:
    """Blocks in use or promised never exceed the pool, and nobody has more than was promised to it."""
    return when(s.held[r] >= 1).then(s.held[r] <= s.want[r], s.used + s.reserved <= pool_blocks)


@spec.safety(ids=("P11",), lemma=True)
def the_pool_is_not_promised_twice(s: State) -> Implication:
    """Blocks in use and blocks promised fit the pool together."""
    return always(s.used + s.reserved <= pool_blocks)


@spec.safety(ids=("P5",), lemma=True)
def only_an_admitted_request_has_a_share(s: State, r: Request) -> Implication:
    """A request has blocks from its admission, or the start of its load, until it is preempted or freed."""
    return when(s.held[r] >= 1).then(
        do.has_slot(s, r)
        | s.kv_holding[r]
        | s.status[r].is_in(Status.WAITING_FOR_REMOTE_KVS, Status.WAITING_FOR_STREAMING_REQ, *OVER)
    )


@spec.safety(ids=("P5",), lemma=True)
def an_admitted_request_has_a_share(s: State, r: Request) -> Implication:
    """Whoever runs, loads or keeps its last turn has blocks."""
    return when(do.has_slot(s, r) | s.kv_holding[r] | do.is_loading(s, r)).then(s.held[r] >= 1)


@spec.safety(ids=("P5",), lemma=True)
def an_unfinished_request_wants_something(s: State, r: Request) -> Implication:
    """Every request needs a block to run."""
    return when(do.is_unfinished(s, r)).then(s.want[r] >= 1)


@spec.step(ids=("P5",))
def a_pass_goes_on_after_a_preemption(s: State, k: Step) -> Implication:
    """A pass that preempted somebody does not end empty while a running request could use what is free."""
    return when(
        s.old.flight[k] == Flight.BUILDING, s.flight[k] == Flight.DISPATCHED, s.old.preempted_in_pass
    ).then(exists(Request, lambda r: s.old.row[k, r] == Row.CURRENT) | ~something_can_run(s.old))


@spec.safety(ids=("P5", "NOCRASH"))
def the_engine_survives_every_mishap(s: State) -> Implication:
    """A failed load, or a reset while blocks are held, does not kill the engine."""
    return when(s.mishap).then(s.alive)


# counts


@spec.count("ref", over=Request)
def tables_with_the_block(s: State, b: Block, r: Request) -> Expr:
    """The reference count of a block is the number of tables it is in."""
    return every(s.table[r, b])


@spec.count("running_count", over=Request)
def requests_with_a_slot(s: State, r: Request) -> Expr:
    """Slots in use."""
    return do.has_slot(s, r)


@spec.count("loading_count", over=Request)
def requests_that_load(s: State, r: Request) -> Expr:
    """Loads under way."""
    return do.is_loading(s, r)


@spec.count("placeholders", over=Step)
def tokens_that_a_row_may_bring(s: State, r: Request, k: Step) -> Expr:
    """What a request awaits is the sum of what its rows may bring."""
    return s.row_samples[k, r]  # type: ignore[no-any-return]


@spec.count("enc_used", over=Entry)
def entries_in_the_cache(s: State, e: Entry) -> Expr:
    """The budget counts the entries in the cache."""
    return every(s.enc_cached[e])


@spec.count("used", over=Request)
def blocks_that_a_request_has(s: State, r: Request) -> Expr:
    """Blocks in use are those that requests have."""
    return s.held[r]  # type: ignore[no-any-return]


@spec.count("reserved", over=Request)
def blocks_promised_to_a_request(s: State, r: Request) -> Expr:
    """Blocks promised are what those who have some still lack."""
    return ite(s.held[r] >= 1, s.want[r] - s.held[r], 0)


@spec.safety(ids=("P6",))
def what_is_awaited_is_in_flight(s: State, r: Request) -> Implication:
    """A request awaits output only from rows in flight: an answer without tokens releases what was awaited."""
    return when(s.placeholders[r] >= 1).then(exists(Step, lambda k: s.row_samples[k, r] >= 1))
