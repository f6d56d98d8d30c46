"""Who may hold a block, who takes it and who lets go: asked of the solver, so the matrix is complete for any number of requests.

For each holder and action two claims: in no state that keeps the invariants does the action make it a holder; in none does it
let go. Where a claim is proved the action has no place in the matrix, where it falls the action has one, with a state as
witness. Rejected: reading the assignments only (an abort that may start a send would seem to be able to end one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vllm_lifecycle.adapters.docs.asking import Deed, Progress, answer, doers
from vllm_lifecycle.spec.check.verdict import Verdict
from vllm_lifecycle.spec.lang.build import Expr, Individual, State, variable
from vllm_lifecycle.spec.lang.machine import Param, Property
from vllm_lifecycle.spec.lifecycles.vocabulary import Block, Kind, Request, Step, spec

CLAIM = "who holds a block, who takes it and who lets go"


@dataclass(frozen=True)
class Holder:
    """Something that holds a block: `holds` of a state, the block and an individual `of`; the variable says what it means."""

    name: str
    variable: str
    of: type[Individual] | None
    holds: Callable[[State, Expr, Expr], Expr]


def _pins(kind: Kind) -> Callable[[State, Expr, Expr], Expr]:
    return lambda s, b, x: s.pinned[x, kind, b]


HOLDERS = (
    Holder("block table", "table", Request, lambda s, b, x: s.table[x, b]),
    Holder("dispatched step", "step_holds", Step, lambda s, b, x: s.step_holds[x, b]),
    *(Holder(f"{kind.name.lower()} transfer", "pinned", Request, _pins(kind)) for kind in Kind),
    Holder("free pool", "free", None, lambda s, b, x: s.free[b]),
)
"""All that a block can be with; the free pool last."""


def _claims() -> Iterator[tuple[Holder, str, Property]]:
    """(holder, what an action might do, the claim that none does)."""
    s, b = State(spec, primed=True), variable("b", Block)
    for holder in HOLDERS:
        x = variable("x", holder.of or Request)
        params = (Param("b", Block.sort()), *((Param("x", holder.of.sort()),) if holder.of else ()))
        before, after = holder.holds(s.old, b, x).term, holder.holds(s, b, x).term
        for deed, (held, kept) in {"takes": (after, before), "lets go": (before, after)}.items():
            name = f"no_action_{deed.replace(' ', '_')}_as_{holder.name.replace(' ', '_')}"
            yield holder, deed, Property(name, "step", params, held, kept, (), False, "")


def verdict(progress: Progress) -> Verdict:
    """One verdict whose numbers hold the matrix, as holder -> deed -> actions."""
    claims = {claim.name: (holder, deed, claim) for holder, deed, claim in _claims()}
    matrix: dict[str, dict[str, list[str]]] = {h.name: {"takes": [], "lets go": []} for h in HOLDERS}
    unanswered: list[str] = []
    for name, action, can in doers([Deed(claim) for _, _, claim in claims.values()], progress):
        holder, deed, _ = claims[name]
        if can is None:
            unanswered.append(f"{name} by {action}")
        elif can:
            matrix[holder.name][deed].append(action)
    return answer(CLAIM, unanswered, matrix=matrix)
