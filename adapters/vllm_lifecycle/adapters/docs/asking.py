"""Asking the prover which actions can do something at all: exact for any size, given the invariants.

A claim says that no action does the thing; it is asked action by action. Where it is proved the action never does it; where it
falls there is a state that keeps the invariants in which the action does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.spec.lang.machine import Machine, Property
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

Progress = Callable[[str], None]
JOBS = 2
"""Worker processes, where there is enough to ask."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What an action might do: the claim that none does, and the actions to ask about (None: all)."""

    claim: Property
    actions: Collection[str] | None = None


def doers(
    deeds: Sequence[Deed], progress: Progress, machine: Machine = SYSTEM
) -> Iterator[tuple[str, str, bool | None]]:
    """(claim, action, whether it can) of everything asked, in the order of the claims; None where the solver had no answer."""
    from vllm_lifecycle.spec.check.induction.pool import discharge_all
    from vllm_lifecycle.spec.check.induction.prover import GOOD, Answer, Prover
    from vllm_lifecycle.spec.check.induction.theory import Theory

    wanted = {d.claim.name: d.actions for d in deeds}
    whole = replace(machine, properties=(*machine.properties, *(d.claim for d in deeds)), _index={})
    theory = Theory(whole, ())
    asked = [
        o
        for o in theory.obligations
        if o.claim in wanted and o.action is not None and _wants(wanted[o.claim], o.action)
    ]
    told = partial(_tell, progress)
    status = {r.obligation.name: r.status for r in discharge_all(Prover(theory, (0,)), asked, JOBS, told)}
    for o in asked:
        found = status[o.name]
        yield o.claim, str(o.action), True if found is Answer.FAILED else False if found in GOOD else None


def _tell(progress: Progress, done: int, total: int) -> None:
    progress(f"{done} of {total} questions")


def _wants(actions: Collection[str] | None, action: str) -> bool:
    return actions is None or action in actions


def answer(claim: str, unanswered: Sequence[str], **numbers: object) -> Verdict:
    """One verdict for everything asked, which holds when the solver answered it all."""
    return Verdict(
        claim,
        Outcome.NOT_ESTABLISHED if unanswered else Outcome.HOLDS,
        "induction/z3",
        "any number of requests, blocks and steps",
        reason=f"no answer about {', '.join(unanswered)}" if unanswered else "",
        numbers=numbers,
    )
