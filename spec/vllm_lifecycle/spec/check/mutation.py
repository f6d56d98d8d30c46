"""Refuting mutants: each known defect must be caught by the property named for it, and each property must catch one.

A mutant is searched on its own cone of influence with only the features that it needs: the cone is exact for the property,
and fewer features only take behaviour away, so a trace found here is a trace of the whole specification with the defect in
it. The same search of the specification without the defect must find nothing down to that depth; otherwise the property
falls for another reason, and the mutant shows nothing.

Rejected: searching a projection, which has more behaviour than the whole, and then looking for a way to lift its trace
(cones proved small enough); a scope written down for each mutant (a roomy world and some tight ones show them all).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from vllm_lifecycle.spec.check.explicit.search import Limits, OverflowFound, explore, shortest
from vllm_lifecycle.spec.check.liveness import check_progress
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.mutants import MUTANTS, Mutant
from vllm_lifecycle.spec.scopes import AXES, Scope

SCORE = "every_property_refutes_some_mutant"
ENGINE = "mutation"
FEW = 8
LIMITS = Limits(max_seconds=60, max_bytes=2 << 30)


def scopes(mutant: Mutant) -> Iterator[Scope]:
    """The scopes in which a mutant is searched, roomy ones first: slots for all requests or one, a pool of some blocks or one."""
    requests, blocks, _ = mutant.sizes
    sizes = dict(zip(AXES, (*mutant.sizes, 1), strict=True))
    world = {
        "max_tokens": 3,
        "max_want": 2,
        "max_requests": requests,
        "kv_connector": int(bool({"load", "send"} & {*mutant.features})),
        "handoff_stage": int("handoff" in mutant.features),
    }
    for slots, pool in product((requests, 1), (max(2, blocks), 1)):
        constants = {**world, "max_num_seqs": slots, "pool_blocks": pool, **mutant.constants}
        yield Scope(mutant.name, sizes, constants, {"Status": (Status.FINISHED_STOPPED,)}, mutant.features)


def refute(mutant: Mutant, limits: Limits = LIMITS, *, others: bool = False) -> Verdict:
    """Whether the mutant is refuted: HOLDS, with the shortest trace, when the property named for it falls.

    REFUTED when the property survives all scopes; NOT_ESTABLISHED when a search was cut off, when the defect first takes a
    number out of its range, or when the property falls without the defect too. `others` also names the other state and
    step properties that fall within as many steps.
    """
    broken = mutant.machine()
    for scope in scopes(mutant):
        found = _search(broken, scope, mutant.breaks, limits)
        if found.outcome is not Outcome.HOLDS:
            break
    numbers = {**found.numbers, "mutant": mutant.name, "property": mutant.breaks}
    claim = f"{mutant.name} is refuted by {mutant.breaks}"
    answer = replace(found, claim=claim, engine=ENGINE, scope=str(scope), numbers=numbers)
    if found.outcome is Outcome.HOLDS:
        return replace(answer, outcome=Outcome.REFUTED, reason=f"{mutant.breaks} survives the defect")
    if found.outcome is Outcome.NOT_ESTABLISHED:
        return answer
    if _search(SYSTEM, scope, mutant.breaks, limits, depth=len(found.trace)).outcome is Outcome.REFUTED:
        return replace(
            answer, outcome=Outcome.NOT_ESTABLISHED, reason=f"{mutant.breaks} falls without the defect too"
        )
    if others:
        numbers["also"] = _falling(broken, scope, mutant.breaks, replace(limits, max_depth=len(found.trace)))
    # The trace is a run of the specification with the defect: what a "holds" would assume does not matter to it.
    return replace(answer, outcome=Outcome.HOLDS, assumptions=(), reason="", numbers=numbers)


def refute_all(mutants: Sequence[Mutant], *, others: bool = False, jobs: int = 2) -> Iterator[Verdict]:
    """The verdicts of some mutants in their order, by worker processes when there are more than a few."""
    if jobs < 2 or len(mutants) < FEW:
        yield from (refute(m, others=others) for m in mutants)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(partial(_refute_named, others=others), [m.name for m in mutants])


def _refute_named(name: str, *, others: bool) -> Verdict:
    return refute(MUTANTS[name], others=others)


def _search(machine: Machine, scope: Scope, name: str, limits: Limits, depth: int | None = None) -> Verdict:
    """The verdict of one property in its cone; `depth` bounds the search of a state or step property."""
    cone = scope.machine(machine, about=name)
    claim = cone.claim(name)
    try:
        if claim.kind == "progress":
            return check_progress(cone, scope.domain, [claim], limits=limits)[0]
        return shortest(cone, scope.domain, name, replace(limits, max_depth=depth))
    except OverflowFound as error:
        return Verdict(name, Outcome.NOT_ESTABLISHED, ENGINE, "", reason=str(error), trace=error.trace)


def _falling(machine: Machine, scope: Scope, name: str, limits: Limits) -> list[str]:
    cone = scope.machine(machine, about=name)
    verdicts = explore(cone, scope.domain, witnesses=[], limits=limits).verdicts
    return sorted(v.claim for v in verdicts if v.outcome is Outcome.REFUTED and v.claim != name)


def score(verdicts: Iterable[Verdict]) -> Verdict:
    """Which property refutes which mutants; every property that is no mere lemma must refute one."""
    kills: dict[str, list[str]] = {p.name: [] for p in SYSTEM.properties}
    for verdict in verdicts:
        if verdict.outcome is Outcome.HOLDS:
            for name in (verdict.numbers["property"], *verdict.numbers.get("also", ())):
                kills[name].append(verdict.numbers["mutant"])
    missing = [p.name for p in SYSTEM.properties if not p.lemma and not kills[p.name]]
    table = "\n".join(
        f"{name} refutes {len(found)}: {', '.join(found)}" for name, found in kills.items() if found
    )
    outcome = Outcome.NOT_ESTABLISHED if missing else Outcome.HOLDS
    reason = f"no mutant is refuted by {', '.join(missing)}" if missing else ""
    return Verdict(
        SCORE, outcome, "explicit", f"{len(kills)} properties", reason=reason, numbers={"score": table}
    )
