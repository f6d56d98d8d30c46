"""Model steps in flight: the worker's answer is processed row by row in `update_from_output()`.

Steps may be answered in any order, which is more than vLLM allows (it answers in order of dispatch). A row of an earlier
epoch never changes counters: its tokens are delivered to a preempted request, or dropped.
"""

from __future__ import annotations

from typing import Annotated

from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, every, forall, ite
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lang.sorts import IntSort
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.requests import between_calls, may_hold
from vllm_lifecycle.spec.lifecycles.tokens import credit_tokens
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Block,
    Flight,
    Party,
    Phase,
    Request,
    Row,
    Status,
    Step,
    max_tokens,
    spec,
)

UPDATE = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler.update_from_output",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler.update_from_output",
}

Tokens = Annotated[int, IntSort(0, 2)]


@spec.action(by="worker", fair=Fairness.STRONG, source=UPDATE)
def receive_output(s: State, k: Step) -> None:
    """DISPATCHED -> ANSWERED: the step was executed, so it holds no block any more."""
    between_calls(s)
    s.require(s.flight[k] == Flight.DISPATCHED)
    s.flight[k] = Flight.ANSWERED
    s.phase = Phase.UPDATING
    s.step_holds[k, :] = False
    s.running_step[k, :] = False
    s.enc_holds[k, :] = False
    s.enc_running[k, :] = False
    do.settle(s)


def answered(s: State, k: Expr, r: Expr, row: Row) -> None:
    """Guard: the step's output is being processed and has such a row of the request."""
    s.require(s.flight[k] == Flight.ANSWERED)
    s.require(s.row[k, r] == row)


def row_done(s: State, k: Expr, r: Expr) -> None:
    """The row is processed."""
    s.row[k, r] = Row.NONE
    s.epoch_over[k, r] = False


def accepts(s: State, k: Expr, r: Expr, accepted: Expr) -> None:
    """Guard: the worker answers at most what was awaited, at least one token where one was sampled."""
    s.require(accepted <= s.row_samples[k, r])
    s.require((s.row_samples[k, r] >= 1) >> (accepted >= 1), "a row that samples brings a token")


@spec.action(by="scheduler", fair=True, source=UPDATE)
def credit_output(s: State, k: Step, r: Request, accepted: Tokens, drafted: bool) -> None:
    """The row's tokens are appended, refused drafts are rolled back, and the request goes on, perhaps with a new draft."""
    answered(s, k, r, Row.CURRENT)
    accepts(s, k, r, accepted)  # type: ignore[arg-type]
    row_done(s, k, r)
    credit_tokens(s, k, r, accepted)  # type: ignore[arg-type]
    s.drafts[r] = ite(every(drafted) & (s.known[r] < max_tokens), 1, 0)


@spec.action(
    by="scheduler",
    fair=True,
    feature="empty_output",
    source={"0.32.0": UPDATE["0.32.0"] + " (no sampled token)"},
)
def credit_empty_output(s: State, k: Step, r: Request) -> None:
    """A row that sampled comes back without a token: nothing is appended, and what was awaited is awaited no longer."""
    answered(s, k, r, Row.CURRENT)
    row_done(s, k, r)
    credit_tokens(s, k, r, ite(True, 0, 0))


def may_stop(s: State, reason: object) -> None:
    """Guard: a reason that the processing of an output can find."""
    assert isinstance(reason, Expr)
    s.require(
        reason.is_in(Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED, Status.FINISHED_REPETITION)
    )


STOP = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler.update_from_output, _free_request; v1/core/sched/utils.py: check_stop",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_stopped_request, _free_request; v1/core/sched/utils.py: check_stop",
    "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler._free_request",
}


@spec.action(by="scheduler", source=STOP)
def stop_request(s: State, k: Step, r: Request, reason: Status, hold: bool) -> None:
    """RUNNING (or PREEMPTED, on a token of its last run) -> FINISHED_*: the output shows that the request is done."""
    s.require(s.flight[k] == Flight.ANSWERED)
    s.require(s.row[k, r].is_in(Row.CURRENT, Row.DELIVERABLE), "a row whose tokens count")
    s.require(s.status[r].is_in(Status.RUNNING, Status.WAITING_FOR_CHUNK, Status.PREEMPTED), "only once")
    may_stop(s, reason)
    may_hold(s, r, hold)
    do.finish(s, r, reason, hold)


@spec.action(by="scheduler", fair=True, source={"0.32.0": UPDATE["0.32.0"] + " (num_stale_output_tokens)"})
def deliver_stale_output(s: State, k: Step, r: Request) -> None:
    """A preempted request gets the tokens of its last run; its counters, reset at preemption, stay as they are."""
    answered(s, k, r, Row.DELIVERABLE)
    row_done(s, k, r)
    s.known[r] = ite(s.known[r] < max_tokens, s.known[r] + 1, s.known[r])


@spec.action(
    by="scheduler",
    fair=True,
    source={
        "0.13.0": UPDATE["0.13.0"] + " (request is None or finished)",
        "0.32.0": UPDATE["0.32.0"] + " (drop_stale_output)",
    },
)
def drop_stale_output(s: State, k: Step, r: Request) -> None:
    """A row of a former epoch, or of a request that is finished or reborn, has no effect."""
    answered(s, k, r, Row.DROPPED)
    row_done(s, k, r)


@spec.action(by="worker", feature="contract", source=UPDATE)
def fail_unanswered_row(s: State, k: Step, r: Request) -> None:
    """The worker's answer lacks a scheduled request: that request ends with an error, and the worker is blamed."""
    answered(s, k, r, Row.CURRENT)
    s.require(s.status[r].is_in(Status.RUNNING, Status.WAITING_FOR_CHUNK), "only once")
    do.blame(s, Party.WORKER)
    do.finish(s, r, Status.FINISHED_ERROR, hold=False)


@spec.action(
    by="scheduler",
    feature="sync_load",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._handle_invalid_blocks",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_invalid_blocks, _update_requests_with_invalid_blocks",
    },
)
def report_invalid_blocks(s: State, bad: SetOf[Block]) -> None:
    """Blocks whose load failed leave the prefix cache; their requests compute them again."""
    s.require(s.phase == Phase.UPDATING)
    s.require(forall(Block, lambda b: bad[b] >> s.cached[b]))
    s.cached[:] = lambda b: s.cached[b] & ~bad[b]
    s.content[:] = lambda b: s.content[b] & ~bad[b]
    s.mishap = True


@spec.action(by="scheduler", fair=True, source=UPDATE)
def finish_update(s: State, k: Step) -> None:
    """ANSWERED -> IDLE: every row of the output is processed."""
    s.require(s.flight[k] == Flight.ANSWERED)
    s.require(forall(Request, lambda r: s.row[k, r] == Row.NONE), "every row is processed")
    s.flight[k] = Flight.IDLE
    s.phase = Phase.BETWEEN_CALLS


@spec.action(
    by="scheduler",
    feature="sessions",
    source={"0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_stopped_request"},
)
def end_turn(s: State, k: Step, r: Request) -> None:
    """RUNNING -> WAITING_FOR_STREAMING_REQ: a resumable request ends its turn and keeps its blocks; later outputs are dropped."""
    answered(s, k, r, Row.CURRENT)
    s.require(s.resumable[r])
    s.require(s.status[r] == Status.RUNNING)
    do.end_epoch(s, r, Row.DROPPED)
    do.enter_waiting_tail(s, r, Status.WAITING_FOR_STREAMING_REQ)
    s.kv_holding[r] = True
    s.computed[r] = s.computed[r] - s.placeholders[r]
    s.placeholders[r] = 0
    s.drafts[r] = 0


@spec.action(
    by="scheduler",
    feature="sessions",
    source={"0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_stopped_request"},
)
def end_turn_while_preempted(s: State, k: Step, r: Request) -> None:
    """PREEMPTED -> WAITING_FOR_STREAMING_REQ, in its place: a token of its last run ends the turn; its blocks are gone."""
    answered(s, k, r, Row.DELIVERABLE)
    s.require(s.resumable[r])
    s.require(s.status[r] == Status.PREEMPTED)
    do.end_epoch(s, r, Row.DROPPED)
    do.set_status(s, r, Status.WAITING_FOR_STREAMING_REQ)
