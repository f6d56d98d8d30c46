"""Queues and statuses: an unfinished request is in exactly one place, a final status is final."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    GONE,
    OVER,
    Request,
    Status,
    spec,
)


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
