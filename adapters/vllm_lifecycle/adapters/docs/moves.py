"""Which rows of the transition tables can be taken: rows read off the actions are too many where a guard speaks of other state.

Each row that is proved never to be taken is left out of the pages. The tables themselves keep it: there it only says what an
assignment could do.
"""

from __future__ import annotations

from enum import Enum

from vllm_lifecycle.adapters.docs.asking import Deed, Progress, answer, doers
from vllm_lifecycle.spec.check.verdict import Verdict
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Lifecycle, Param, Property
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.statemachine.tables import tables

CLAIM = "which transitions can be taken"
Row = tuple[str, str, str, str]
"""Lifecycle, source, target, action."""


def verdict(progress: Progress) -> Verdict:
    """One verdict whose numbers list the rows that are never taken."""
    deeds: dict[str, tuple[str, str, str]] = {}
    asked = []
    for lifecycle in SYSTEM.lifecycles:
        actions: dict[tuple[Enum, Enum], list[str]] = {}
        for row in tables()[lifecycle.name].rows:
            actions.setdefault((row.source, row.target), []).append(row.action)
        for (source, target), names in actions.items():
            claim = _never(lifecycle, source, target)
            deeds[claim.name] = (lifecycle.name, source.name, target.name)
            asked.append(Deed(claim, names))
    never: list[Row] = []
    unanswered: list[str] = []
    for claim_name, action, can in doers(asked, progress):
        if can is None:
            unanswered.append(f"{claim_name} by {action}")
        elif not can:
            never.append((*deeds[claim_name], action))
    return answer(CLAIM, unanswered, never=never)


def _never(lifecycle: Lifecycle, source: Enum, target: Enum) -> Property:
    """The claim that no object of the lifecycle goes from one state to the other."""
    var = SYSTEM.var(lifecycle.var)
    params = tuple(Param(f"x{i}", sort) for i, sort in enumerate(var.args))
    place = tuple(p.var if fixed is None else fixed for p, fixed in zip(params, lifecycle.index, strict=True))
    free = tuple(p for p, fixed in zip(params, lifecycle.index, strict=True) if fixed is None)
    before, after = (t.Read(var.name, place, var.sort, primed) for primed in (False, True))
    name = f"no_{lifecycle.name}_goes_from_{source.name}_to_{target.name}"
    was = t.equal(before, t.Lit(source, var.sort))
    kept = t.neg(t.equal(after, t.Lit(target, var.sort)))
    return Property(name, "step", free, was, kept, (), False, "")
