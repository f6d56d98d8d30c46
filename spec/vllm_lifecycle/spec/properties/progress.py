"""Progress: what happens sooner or later, under the fairness that the actions declare.

Fair are: the scheduler's own next steps, the worker's answers, and the end of every transfer that was not lost. Not assumed:
that clients stop sending or aborting, that requests stop, or that a lost transfer ever reports: a scope with the feature
`loss` refutes the first claim, and that is the truth about it.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State, exists
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    OUTSTANDING,
    OVER,
    Flight,
    Kind,
    Request,
    Status,
    Step,
    spec,
)


@spec.progress(ids=("P2", "DRAIN", "PROGRESS"))
def a_finished_request_is_eventually_freed(s: State, r: Request) -> Implication:
    """A finished request gives its id and its last block back."""
    return when(s.status[r].is_in(*OVER)).then(s.status[r] == Status.FREED)


@spec.progress(ids=("P2", "DRAIN"))
def a_transfer_is_eventually_over(s: State, r: Request, kind: Kind) -> Implication:
    """Every transfer that is needed or active comes to an end."""
    return when(s.transfer[r, kind].is_in(*OUTSTANDING)).then(~s.transfer[r, kind].is_in(*OUTSTANDING))


@spec.progress(ids=("P2",))
def a_dispatched_step_is_eventually_processed(s: State, k: Step) -> Implication:
    """Every dispatched step is answered and its output processed."""
    return when(s.flight[k] == Flight.DISPATCHED).then(s.flight[k] == Flight.IDLE)


@spec.progress(ids=("PROGRESS",))
def a_request_eventually_leaves_the_wait_for_remote_kv(s: State, r: Request) -> Implication:
    """Loading has an end, good or bad."""
    return when(s.status[r] == Status.WAITING_FOR_REMOTE_KVS).then(
        s.status[r] != Status.WAITING_FOR_REMOTE_KVS
    )


@spec.progress(ids=("PROGRESS",))
def a_request_eventually_leaves_the_wait_for_its_grammar(s: State, r: Request) -> Implication:
    """Compilation has an end, good or bad."""
    return when(s.status[r] == Status.WAITING_FOR_GRAMMAR).then(s.status[r] != Status.WAITING_FOR_GRAMMAR)


@spec.progress(ids=("PROGRESS",))
def a_request_eventually_leaves_the_wait_for_a_chunk(s: State, r: Request) -> Implication:
    """The wait for a chunk has an end."""
    return when(s.status[r] == Status.WAITING_FOR_CHUNK).then(s.status[r] != Status.WAITING_FOR_CHUNK)


@spec.progress(ids=("P5",))
def something_that_fits_is_eventually_scheduled(s: State, r: Request) -> Implication:
    """While a request waits, some request gets to run (or it goes away): loads never block one another for good."""
    return when(do.is_waiting(s, r)).then(
        exists(Request, lambda x: do.has_slot(s, x))
        | ~do.is_unfinished(s, r)
        | (s.status[r] == Status.WAITING_FOR_CHUNK)
    )
