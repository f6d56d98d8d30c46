"""The request lifecycle as clients and the grammar compiler drive it: arrival, abort, sessions, cache reset, sleep."""

from __future__ import annotations

from typing import Annotated

from vllm_lifecycle.spec.lang.build import Expr, State, every, exists, forall
from vllm_lifecycle.spec.lang.sorts import IntSort
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    GONE,
    Block,
    Kind,
    Party,
    Phase,
    Request,
    Row,
    Status,
    kv_connector,
    max_tokens,
    pool_blocks,
    spec,
)

Prompt = Annotated[int, IntSort(1, "max_tokens")]
Blocks = Annotated[int, IntSort(1, "max_want")]


def between_calls(s: State) -> None:
    """Guard of an action that is a call of its own into the scheduler."""
    s.require(s.phase == Phase.BETWEEN_CALLS, "calls do not overlap")


def arrive(s: State, r: Expr, status: Status, prompt: object, want: Expr, resumable: object = False) -> None:
    """A new incarnation takes an id that is free and joins the waiting queue."""
    between_calls(s)
    s.require(s.status[r] == Status.FREED, "the id is not in use, nor held by a transfer of its last owner")
    s.require(want <= pool_blocks, "it fits an empty pool")
    do.enter_waiting_tail(s, r, status)
    s.want[r] = want
    s.known[r] = prompt
    s.resumable[r] = resumable
    s.incarnation[r] = ~s.incarnation[r]
    s.finish_hooks[r] = 0
    s.told_new[r] = 0
    s.handoffs[r] = 0
    s.asleep = False


ADD = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler.add_request; v1/request.py: Request.__init__",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler.add_request, _enqueue_waiting_request; v1/request.py: Request.__init__",
}


@spec.action(by="client", source=ADD)
def add_request(s: State, r: Request, prompt: Prompt, want: Blocks, resumable: bool) -> None:
    """FREED -> WAITING: a client's request takes a free id and goes to the end of the waiting queue."""
    arrive(s, r, Status.WAITING, prompt, want, resumable)  # type: ignore[arg-type]


@spec.action(by="client", feature="grammar", source=ADD)
def add_structured_request(s: State, r: Request, prompt: Prompt, want: Blocks) -> None:
    """FREED -> WAITING_FOR_GRAMMAR: a request with structured output waits for its grammar (0.13.0 calls it WAITING_FOR_FSM)."""
    arrive(s, r, Status.WAITING_FOR_GRAMMAR, prompt, want)  # type: ignore[arg-type]


@spec.action(by="client", feature="contract", source=ADD)
def refuse_duplicate_request(s: State, r: Request) -> None:
    """An id that is in use, or held for a transfer, is added again: refused, and the client is blamed."""
    between_calls(s)
    s.require(s.status[r] != Status.FREED)
    do.blame(s, Party.CLIENT)


@spec.action(
    by="scheduler", feature="refusal", source={"0.32.0": "v1/request.py: RequestStatus.FINISHED_IGNORED"}
)
def refuse_oversized_request(s: State, r: Request) -> None:
    """FREED -> FINISHED_IGNORED: a request that could not run even in an empty pool is ended at once, with its reason."""
    between_calls(s)
    s.require(s.status[r] == Status.FREED)
    do.set_status(s, r, Status.FINISHED_IGNORED)
    s.notice[r] = True
    s.asleep = False


@spec.action(
    by="grammar",
    feature="grammar",
    fair=True,
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler.schedule (WAITING_FOR_FSM); "
        "v1/structured_output/request.py: StructuredOutputRequest._check_grammar_completion",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_blocked_waiting_request",
    },
)
def grammar_ready(s: State, r: Request) -> None:
    """WAITING_FOR_GRAMMAR -> WAITING: the grammar is compiled; the request keeps its place."""
    s.require(s.status[r] == Status.WAITING_FOR_GRAMMAR)
    do.set_status(s, r, Status.WAITING)


@spec.action(
    by="grammar",
    feature="grammar",
    source={
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler.update_from_output (grammar_compile_error_reqs)"
    },
)
def grammar_fails(s: State, r: Request) -> None:
    """WAITING_FOR_GRAMMAR -> FINISHED_ERROR: the grammar does not compile; only this request ends."""
    s.require(s.status[r] == Status.WAITING_FOR_GRAMMAR)
    do.finish(s, r, Status.FINISHED_ERROR, hold=False)


def may_hold(s: State, r: Expr, hold: object) -> None:
    """The connector may ask to hold the blocks only where there are blocks, and no send is under way."""
    s.require(every(hold) >> (exists(Block, lambda b: s.table[r, b])), "no blocks, nothing to send")
    s.require(every(hold) >> (kv_connector == 1), "only a connector holds")
    s.require(every(hold) >> ~do.outstanding_kind(s, r, Kind.SEND), "one send per incarnation")


ABORT = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler.finish_requests, _free_request",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler.finish_requests, _free_request, _free_request_blocks",
    "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler._free_request",
}


@spec.action(by="client", source=ABORT)
def abort_request(s: State, r: Request, hold: bool) -> None:
    """Any unfinished state -> FINISHED_ABORTED, or WAITING_FOR_TRANSFER_FREE when a transfer still touches its blocks."""
    between_calls(s)
    s.require(do.is_unfinished(s, r))
    may_hold(s, r, hold)
    do.finish(s, r, Status.FINISHED_ABORTED, hold)
    s.asleep = False


@spec.action(by="client", feature="contract", source=ABORT)
def abort_finished_request(s: State, r: Request) -> None:
    """Aborting a request that is finished, held or gone changes nothing."""
    between_calls(s)
    s.require(s.status[r].is_in(*GONE))


# the end of a finished request


@spec.action(
    by="scheduler",
    fair=True,
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._free_blocks",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._free_blocks",
        "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler.update_from_output (kv_extracted_req_ids)",
    },
)
def free_request(s: State, r: Request) -> None:
    """FINISHED_* or WAITING_FOR_TRANSFER_FREE -> FREED: no transfer is left, so the id may be used again."""
    s.require(do.is_finished(s, r))
    s.require(~do.outstanding(s, r), "no transfer of this incarnation is outstanding")
    do.set_status(s, r, Status.FREED)
    do.give_back_share(s, r)
    s.want[r] = 0
    s.announced[r] = False
    s.resumable[r] = False
    s.ended_badly[r] = False
    s.output_params[r, :] = False
    s.params_made[r, :] = False


# streaming sessions


@spec.action(
    by="client",
    feature="sessions",
    source={"0.32.0": "v1/core/sched/scheduler.py: Scheduler.add_request, _update_request_as_session"},
)
def continue_session(s: State, r: Request) -> None:
    """WAITING_FOR_STREAMING_REQ -> WAITING: the client sends the next turn; computed blocks stay in the table."""
    between_calls(s)
    s.require(s.status[r] == Status.WAITING_FOR_STREAMING_REQ)
    s.require(s.known[r] < max_tokens, "the new turn fits")
    s.known[r] = s.known[r] + 1
    do.set_status(s, r, Status.WAITING)
    s.asleep = False


@spec.action(
    by="client",
    feature="sessions",
    source={"0.32.0": "v1/core/sched/scheduler.py: Scheduler.add_request (which ends it as aborted)"},
)
def close_session(s: State, r: Request, hold: bool) -> None:
    """WAITING_FOR_STREAMING_REQ -> FINISHED_STOPPED: the client has no further input, so that the last turn was the end."""
    between_calls(s)
    s.require(s.status[r] == Status.WAITING_FOR_STREAMING_REQ)
    may_hold(s, r, hold)
    do.finish(s, r, Status.FINISHED_STOPPED, hold)
    s.asleep = False


# prefix-cache reset

RESET = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler.reset_prefix_cache",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler.reset_prefix_cache",
}


@spec.action(by="client", feature="reset", source=RESET)
def reset_prefix_cache(s: State) -> None:
    """No block is held: every cached block is forgotten."""
    between_calls(s)
    s.require(forall(Block, lambda b: s.free[b]), "no block is held")
    s.cached[:] = False


@spec.action(by="client", feature="reset", source=RESET)
def refuse_reset(s: State) -> None:
    """Some block is held: the reset is refused with a result, and nothing changes."""
    between_calls(s)
    s.require(exists(Block, lambda b: ~s.free[b]))


@spec.action(by="client", feature="reset", source=RESET)
def begin_forced_reset(s: State) -> None:
    """A reset with preemption begins: running requests are preempted one by one, in this call."""
    between_calls(s)
    s.phase = Phase.RESETTING


@spec.action(by="scheduler", feature="reset", fair=True, source=RESET)
def preempt_for_reset(s: State, r: Request) -> None:
    """RUNNING -> PREEMPTED within a forced reset: outputs in flight are dropped, for the request restarts at once."""
    s.require(s.phase == Phase.RESETTING)
    s.require(s.status[r] == Status.RUNNING)
    do.preempt(s, r, Row.DROPPED)


@spec.action(by="scheduler", feature="reset", fair=True, source=RESET)
def complete_forced_reset(s: State) -> None:
    """Nobody runs: every cached block is forgotten; one that a transfer or a step still holds is not a reason to fail."""
    s.require(s.phase == Phase.RESETTING)
    s.require(forall(Request, lambda r: s.status[r] != Status.RUNNING))
    s.cached[:] = False
    s.mishap = s.mishap | exists(Block, lambda b: ~s.free[b])
    s.phase = Phase.BETWEEN_CALLS


# the engine loop


def rests(s: State, r: Expr) -> Expr:
    """Nothing is to be done for the id before its client speaks: it is free, or an idle session has it."""
    return every(s.status[r].is_in(Status.FREED, Status.WAITING_FOR_STREAMING_REQ))


@spec.action(
    by="scheduler",
    feature="sleep",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler.has_finished_requests; v1/engine/core.py: run_busy_loop",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler.has_requests, has_finished_requests",
        "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler.has_requests",
    },
)
def go_to_sleep(s: State) -> None:
    """The engine loop waits for a client: only idle sessions are tracked, no transfer is outstanding, no notice is due."""
    between_calls(s)
    s.require(forall(Request, lambda r: rests(s, r)), "no request is left")
    s.require(forall(Request, lambda r: ~do.outstanding(s, r)), "no transfer is outstanding")
    s.require(forall(Request, lambda r: ~s.notice[r]), "no notice is due")
    s.asleep = True
