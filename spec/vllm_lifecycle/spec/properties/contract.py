"""Contract and survival: breaches are blamed and survived, and the engine is awake while something is due."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    OUTSTANDING,
    Kind,
    Party,
    Request,
    Status,
    spec,
)


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
    """The engine loop runs while there is something to schedule; a session that waits for its client may let it sleep."""
    return when(do.is_unfinished(s, r), s.status[r] != Status.WAITING_FOR_STREAMING_REQ).then(~s.asleep)


@spec.safety(ids=("P8",))
def the_engine_is_awake_while_a_notice_is_due(s: State, r: Request) -> Implication:
    """The engine loop runs until the workers know which requests finished."""
    return when(s.notice[r]).then(~s.asleep)


@spec.safety(ids=("P5", "NOCRASH"))
def the_engine_survives_every_mishap(s: State) -> Implication:
    """A failed load, or a reset while blocks are held, does not kill the engine."""
    return when(s.mishap).then(s.alive)
