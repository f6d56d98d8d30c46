"""The chunk gate of vllm-omni: a request waits for input that a former stage still produces.

A request parked from the running list stays in it and keeps its blocks; one parked from the waiting queue keeps its place.
The adapter polls for the id while the request lives, and for no longer.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State, forall, ite
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import Flight, Phase, Request, Row, Status, Step, spec

GATE = {
    "omni": "distributed/omni_connectors/transfer_adapter/chunk_transfer_adapter.py: "
    "process_pending_chunks, _process_chunk_queue, restore_queues"
}


@spec.action(by="scheduler", feature="chunks", source=GATE)
def park_for_chunk(s: State, r: Request) -> None:
    """WAITING or RUNNING -> WAITING_FOR_CHUNK: the next piece of input is not there; the adapter polls for it."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r].is_in(Status.WAITING, Status.RUNNING))
    s.require(~s.kv_holding[r])
    s.require(
        forall(Step, lambda k: (s.flight[k] == Flight.BUILDING) >> (s.row[k, r] == Row.NONE)),
        "not scheduled in this pass",
    )
    s.parked_running[r] = s.status[r] == Status.RUNNING
    s.polled[r] = True
    do.set_status(s, r, Status.WAITING_FOR_CHUNK)


@spec.action(by="connector", feature="chunks", source=GATE)
def chunk_arrives(s: State, r: Request) -> None:
    """The polled chunk is there."""
    s.require(s.polled[r])
    s.polled[r] = False
    s.chunk_ready[r] = True


@spec.action(by="scheduler", feature="chunks", fair=Fairness.STRONG, source=GATE)
def resume_with_chunk(s: State, r: Request) -> None:
    """WAITING_FOR_CHUNK -> where it came from, in the same place of the same queue."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.WAITING_FOR_CHUNK)
    s.require(s.chunk_ready[r])
    s.chunk_ready[r] = False
    do.set_status(s, r, ite(s.parked_running[r], Status.RUNNING, Status.WAITING))
    s.parked_running[r] = False


@spec.action(
    by="scheduler",
    feature="chunks",
    fair=Fairness.STRONG,
    source={"omni": "no counterpart in 0.16.0: the wait had no bound; 0.30.0 has a deadline"},
)
def give_up_on_chunk(s: State, r: Request) -> None:
    """WAITING_FOR_CHUNK -> FINISHED_ERROR: the deadline for the chunk has passed."""
    s.require(s.phase == Phase.UPDATING)
    s.require(s.status[r] == Status.WAITING_FOR_CHUNK)
    do.finish(s, r, Status.FINISHED_ERROR, hold=False)
