"""Who may hold a block, who takes it and who lets go: asked of the solver, so the matrix is complete for any number of requests.

For each holder and action two claims: in no state that keeps the invariants does the action make it a holder; in none does it
let go. Where a claim is proved the action has no place in the matrix, where it falls the action has one, with a state as
witness. Rejected: reading the assignments only (an abort that may start a send would seem to be able to end one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.spec.lang.build import Expr, Individual, State, variable
from vllm_lifecycle.spec.lang.machine import Machine, Param, Property
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
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


def verdict(progress: Callable[[str], None], machine: Machine = SYSTEM) -> Verdict:
    """One verdict whose numbers hold the matrix, as holder -> deed -> actions; it holds when the solver answered everything."""
    from vllm_lifecycle.spec.check.induction.prover import GOOD, Answer, Prover
    from vllm_lifecycle.spec.check.induction.theory import Theory

    claims = {c.name: (h, deed) for h, deed, c in _claims()}
    whole = replace(machine, properties=(*machine.properties, *(c for _, _, c in _claims())), _index={})
    theory = Theory(whole, ())
    prover = Prover(theory, (0,))
    asked = [o for o in theory.obligations if o.claim in claims and o.action is not None]
    matrix: dict[str, dict[str, list[str]]] = {h.name: {"takes": [], "lets go": []} for h in HOLDERS}
    open_: list[str] = []
    for number, obligation in enumerate(asked, start=1):
        progress(f"{number} of {len(asked)} obligations")
        status = prover.discharge(obligation).status
        if status is Answer.FAILED:
            holder, deed = claims[obligation.claim]
            matrix[holder.name][deed].append(str(obligation.action))
        elif status not in GOOD:
            open_.append(obligation.name)
    return Verdict(
        CLAIM,
        Outcome.NOT_ESTABLISHED if open_ else Outcome.HOLDS,
        "induction/z3",
        "any number of requests, blocks and steps",
        reason=f"no answer: {', '.join(open_)}" if open_ else "",
        numbers={"obligations": len(asked), "matrix": matrix},
    )
