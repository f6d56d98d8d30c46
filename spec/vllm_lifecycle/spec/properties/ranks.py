"""Ranks of the progress claims: why they hold for any number of requests, blocks and steps.

The rule is that of `check/induction/ranking`: a measure that no action raises, and fair steps that lower it. The claims
that come first only say that the engine's loop goes on: a call ends, and while a hand-off waits for a pass, a pass begins.
"""

from __future__ import annotations

from vllm_lifecycle.spec.check.induction.ranking import Rankings, helpful, members
from vllm_lifecycle.spec.lang.build import Expr, State, either, every, forall, ite, one_if
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Flight,
    Kind,
    Phase,
    Request,
    Row,
    Status,
    Step,
    Transfer,
)

RANKS = Rankings(SYSTEM)


def open_row(s: State, k: Expr, r: Expr, *rows: Row) -> Expr:
    """The step's output is being processed and has such a row of the request."""
    return every(s.flight[k] == Flight.ANSWERED, s.row[k, r].is_in(*rows))


def to_preempt(s: State, r: Expr) -> Expr:
    """A forced reset has yet to preempt the request."""
    return every(s.phase == Phase.RESETTING, s.status[r] == Status.RUNNING)


def a_call_ends(s: State) -> Implication:
    """The processing of an output and a reset come to an end."""
    return when(s.phase.is_in(Phase.UPDATING, Phase.RESETTING)).then(s.phase == Phase.BETWEEN_CALLS)


RANKS.lemma(
    a_call_ends,
    rank=lambda s: (
        members(Step, Request, lambda k, r: open_row(s, k, r, Row.CURRENT, Row.DELIVERABLE, Row.DROPPED)),
        members(Step, Request, lambda k, r: open_row(s, k, r, Row.CURRENT)),
        members(Step, Request, lambda k, r: open_row(s, k, r, Row.DELIVERABLE)),
        members(Request, lambda r: to_preempt(s, r)),
    ),
    steps=lambda s: (
        helpful(
            "credit_output",
            when=lambda k, r, accepted, drafted: (
                open_row(s, k, r, Row.CURRENT)
                & (accepted == one_if(s.row_samples[k, r] >= 1))
                & ~every(drafted)
            ),
        ),
        helpful("deliver_stale_output", when=lambda k, r: open_row(s, k, r, Row.DELIVERABLE)),
        helpful("drop_stale_output", when=lambda k, r: open_row(s, k, r, Row.DROPPED)),
        helpful(
            "finish_update",
            when=lambda k: (
                (s.flight[k] == Flight.ANSWERED) & forall(Request, lambda r: s.row[k, r] == Row.NONE)
            ),
        ),
        helpful("preempt_for_reset", when=lambda r: to_preempt(s, r)),
        helpful(
            "complete_forced_reset",
            when=(s.phase == Phase.RESETTING) & forall(Request, lambda r: s.status[r] != Status.RUNNING),
        ),
    ),
)


def needs_handoff(s: State, r: Expr) -> Expr:
    """The request's blocks are to be handed to the next stage, and no pass has told the worker yet."""
    return every(s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED)


def a_pass_begins_for_a_needed_handoff(s: State, r: Request) -> Implication:
    """While a hand-off waits for a pass, the engine is awake and begins one."""
    return when(needs_handoff(s, r)).then(~needs_handoff(s, r) | (s.phase == Phase.SCHEDULING))


RANKS.lemma(
    a_pass_begins_for_a_needed_handoff,
    rank=lambda s, r: (members(Step, lambda k: s.flight[k] == Flight.DISPATCHED),),
    steps=lambda s, r: (
        helpful(
            "begin_pass", when=lambda k: s.flight[k].is_in(Flight.IDLE, Flight.ANSWERED), after="a_call_ends"
        ),
        helpful("receive_output", when=lambda k: s.flight[k] == Flight.DISPATCHED, after="a_call_ends"),
    ),
)


def under_way(s: State, r: Expr, kind: Kind) -> Expr:
    """The transfer was started and is neither over nor lost."""
    return every(s.transfer[r, kind] == Transfer.ACTIVE)


def is_lost(s: State, r: Expr) -> Expr:
    """A transfer of the request will perhaps never report."""
    return either(*(s.transfer[r, kind] == Transfer.LOST for kind in Kind))


def stages_left(s: State, r: Expr, kind: Kind) -> Expr:
    """How many steps a transfer is away from its end."""
    return ite(s.transfer[r, kind] == Transfer.NEEDED, 2, one_if(under_way(s, r, kind)))


RANKS.claim(
    "a_finished_request_is_eventually_freed",
    rank=lambda s, r: tuple(stages_left(s, r, kind) for kind in Kind),
    steps=lambda s, r: (
        helpful("receive_completes", r=r, when=under_way(s, r, Kind.RECEIVE)),
        helpful("send_completes", r=r, when=under_way(s, r, Kind.SEND)),
        helpful(
            "ship_handoff",
            r=r,
            when=needs_handoff(s, r),
            after="a_pass_begins_for_a_needed_handoff",
            given={"r": r},
        ),
        helpful("acknowledge_handoff", r=r, when=under_way(s, r, Kind.HANDOFF)),
        helpful("free_request", r=r, when=~do.outstanding(s, r)),
    ),
    unless=("a transfer of the request is lost", is_lost),
)
RANKS.claim(
    "a_request_eventually_leaves_the_wait_for_its_grammar",
    rank=lambda s, r: (),
    steps=lambda s, r: (helpful("grammar_ready", r=r, when=s.status[r] == Status.WAITING_FOR_GRAMMAR),),
)

RANKINGS = tuple(RANKS.all)
"""In the order in which they lean on each other."""
