"""Transfers: what the connector and the next stage report, and what becomes of reports that match nothing.

A transfer belongs to one incarnation of a request: the id stays in use until every transfer of the incarnation is over, so
a report is matched by id and kind with exactly one outstanding transfer, or with none. Unmatched reports are blamed on their
sender and change nothing else. A transfer completes in any phase, which is more than vLLM allows (it hears of it in
`update_from_output()`); what follows from it in the scheduler happens in the proper call.
"""

from __future__ import annotations

from collections.abc import Callable

from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, every, exists, forall, ite
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Block,
    Kind,
    Party,
    Phase,
    Request,
    Status,
    Transfer,
    handoff_stage,
    spec,
)

FINISHED_HOOK = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler._update_from_kv_xfer_finished",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler._update_from_kv_xfer_finished",
}


def under_way(s: State, r: Expr, kind: Kind) -> None:
    """Guard: the transfer was started and no report of its end has come."""
    s.require(s.transfer[r, kind] == Transfer.ACTIVE)
    s.require(~s.asleep, "reports are read by an engine that is awake")


def still_loading(s: State, r: Expr, state: Transfer) -> Expr:
    """The outcome matters only to a request that still waits for it."""
    return ite(s.status[r] == Status.WAITING_FOR_REMOTE_KVS, state, Transfer.NONE)


def take_in(s: State, r: Expr, whole: Callable[[Expr], Expr]) -> None:
    """Blocks that came whole have their content; they can be shared when the request goes on (promote_loaded_request)."""
    s.content[:] = lambda b: s.content[b] | (s.pinned[r, Kind.RECEIVE, b] & whole(b))
    do.end_transfer(s, r, Kind.RECEIVE, still_loading(s, r, Transfer.DONE))
    do.settle(s)


@spec.action(by="connector", feature="load", fair=True, source=FINISHED_HOOK)
def receive_completes(s: State, r: Request) -> None:
    """The remote writer is done. A request that ended meanwhile needs nothing of it."""
    under_way(s, r, Kind.RECEIVE)
    take_in(s, r, lambda b: every(True))


@spec.action(
    by="connector",
    feature="load_failure",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._update_requests_with_invalid_blocks",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._update_requests_with_invalid_blocks, _update_waiting_for_remote_kv",
    },
)
def receive_completes_in_part(s: State, r: Request, bad: SetOf[Block]) -> None:
    """The remote writer is done, but blocks in `bad` did not come whole; the others can be used."""
    under_way(s, r, Kind.RECEIVE)
    s.require(exists(Block, lambda b: s.pinned[r, Kind.RECEIVE, b] & ~bad[b]), "some block came whole")
    take_in(s, r, lambda b: ~bad[b])
    s.mishap = True


@spec.action(
    by="connector",
    feature="load_failure",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._handle_invalid_blocks (async)",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._handle_failed_recving",
    },
)
def receive_fails(s: State, r: Request) -> None:
    """The remote writer gave up; nothing came whole."""
    under_way(s, r, Kind.RECEIVE)
    do.end_transfer(s, r, Kind.RECEIVE, still_loading(s, r, Transfer.FAILED))
    s.mishap = True
    do.settle(s)


@spec.action(
    by="scheduler",
    feature="load_failure",
    source={
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler.update_from_output (recompute_kv_load_failures false)"
    },
)
def fail_failed_load(s: State, r: Request) -> None:
    """WAITING_FOR_REMOTE_KVS -> FINISHED_ERROR, fail policy: only the request whose load failed ends."""
    s.require(s.status[r] == Status.WAITING_FOR_REMOTE_KVS)
    s.require(s.transfer[r, Kind.RECEIVE] == Transfer.FAILED)
    do.finish(s, r, Status.FINISHED_ERROR, hold=False)


@spec.action(by="connector", feature="send", fair=True, source=FINISHED_HOOK)
def send_completes(s: State, r: Request) -> None:
    """The remote reader has its copy of a finished request's blocks."""
    under_way(s, r, Kind.SEND)
    do.end_transfer(s, r, Kind.SEND, Transfer.NONE)
    do.settle(s)


@spec.action(by="connector", feature="contract", source=FINISHED_HOOK)
def refuse_unmatched_report(s: State, r: Request, kind: Kind) -> None:
    """A report for which no transfer is outstanding (late, twice, too early, or for a foreign id) blames the connector."""
    s.require(s.phase == Phase.UPDATING)
    s.require(~s.transfer[r, kind].is_in(Transfer.ACTIVE, Transfer.LOST))
    do.blame(s, Party.CONNECTOR)


@spec.action(
    by="connector",
    feature="contract",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler.schedule (assert num_new_tokens > 0)",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler.schedule (assert num_new_tokens > 0)",
    },
)
def refuse_full_match(s: State, r: Request) -> None:
    """The connector claims every token of a prompt, so that none is left to compute: refused, and the connector is blamed."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(do.is_waiting(s, r))
    do.blame(s, Party.CONNECTOR)


@spec.action(by="connector", feature="loss")
def lose_transfer(s: State, r: Request, kind: Kind) -> None:
    """ACTIVE -> LOST: the other side is gone without a report; custody stays, for it may still touch the blocks."""
    s.require(s.transfer[r, kind] == Transfer.ACTIVE)
    s.transfer[r, kind] = Transfer.LOST


@spec.action(by="connector", feature="loss", source=FINISHED_HOOK)
def lost_transfer_reports(s: State, r: Request, kind: Kind) -> None:
    """LOST -> over: the report comes after all. Nothing makes it come: fairness does not cover what is lost."""
    s.require(s.transfer[r, kind] == Transfer.LOST)
    s.require(~s.asleep, "reports are read by an engine that is awake")
    s.content[:] = lambda b: s.content[b] | (s.pinned[r, kind, b] & (kind == Kind.RECEIVE))
    do.end_transfer(s, r, kind, ite(kind == Kind.RECEIVE, still_loading(s, r, Transfer.DONE), Transfer.NONE))
    do.settle(s)


# hand-off to the next stage (vllm-omni)


@spec.action(
    by="scheduler",
    feature="handoff",
    source={"omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler._process_kv_transfer_trigger"},
)
def trigger_handoff(s: State, r: Request, snapshot: SetOf[Block]) -> None:
    """Not triggered -> NEEDED while the request runs: a snapshot of its blocks is pinned from now to the acknowledgement."""
    s.require(s.phase == Phase.UPDATING)
    s.require(handoff_stage == 1)
    s.require(s.status[r] == Status.RUNNING)
    s.require(~s.triggered[r], "once per incarnation")
    s.require(s.transfer[r, Kind.HANDOFF] == Transfer.NONE)
    s.require(forall(Block, lambda b: snapshot[b] >> s.table[r, b]))
    s.require(exists(Block, lambda b: snapshot[b]))
    s.triggered[r] = True
    s.handoffs[r] = do.at_most_two(s.handoffs[r] + 1)
    s.transfer[r, Kind.HANDOFF] = Transfer.NEEDED
    s.pinned[r, Kind.HANDOFF, :] = lambda b: snapshot[b]
    s.remote[r, Kind.HANDOFF, :] = lambda b: snapshot[b]


@spec.action(
    by="scheduler",
    feature="handoff",
    fair=Fairness.STRONG,
    source={
        "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler.schedule (finished_requests_needing_kv_transfer)"
    },
)
def ship_handoff(s: State, r: Request) -> None:
    """NEEDED -> ACTIVE: the pass tells the worker to copy the blocks."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED)
    s.transfer[r, Kind.HANDOFF] = Transfer.ACTIVE


@spec.action(
    by="worker",
    feature="handoff",
    fair=True,
    source={
        "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler.update_from_output (kv_extracted_req_ids)"
    },
)
def acknowledge_handoff(s: State, r: Request) -> None:
    """The next stage has its copy, from every rank; one acknowledgement per hand-off."""
    under_way(s, r, Kind.HANDOFF)
    do.end_transfer(s, r, Kind.HANDOFF, Transfer.NONE)
    do.settle(s)
