"""Steps in flight and the prefix cache: who takes part, what is credited to whom, what may be shared."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State, exists
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Block,
    Flight,
    Phase,
    Request,
    Row,
    Status,
    Step,
    spec,
)


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
def an_update_processes_a_step(s: State) -> Implication:
    """Inside `update_from_output()` some step's output is being processed."""
    return when(s.phase == Phase.UPDATING).then(exists(Step, lambda k: s.flight[k] == Flight.ANSWERED))


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
