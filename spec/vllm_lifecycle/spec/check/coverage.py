"""What explorations of several scopes establish together: nothing holds for want of cases, nothing is left out.

In one scope a property may hold only because its interesting case never occurs there; then the scope says nothing about it.
Over all scopes, each property must hold in one in which its case was found, each witness must be found in one, and whatever
is refuted in one is refuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_lifecycle.spec.check.verdict import VACUOUS, Outcome, Verdict
from vllm_lifecycle.spec.lang.machine import Machine

ENGINE = "all scopes"
IN_PROJECTION = "falls in the projection only, which has more behaviour than the whole"
FOUND_IN_PROJECTION = "found in the projection only, which has more behaviour than the whole"
HOLDS_IN_PROJECTION = (
    "holds in the projection only, where fair actions are enabled more often than in the whole"
)
SILENT = frozenset({VACUOUS, FOUND_IN_PROJECTION, HOLDS_IN_PROJECTION})
"""Reasons why a run says nothing about a claim."""


@dataclass(frozen=True)
class Run:
    """The judged verdicts on one scope, by all engines that looked at it."""

    scope: str
    verdicts: tuple[Verdict, ...]


def judged(machine: Machine, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts of one run, less what it cannot say.

    A property that holds without its case is not established. In a projection (guards were dropped) what falls may be kept
    by the whole, an example may not exist in the whole, and progress leans on fairness that the whole does not give.
    """
    cases = {w.of: w.name for w in machine.witnesses if w.of is not None}
    found = {v.claim for v in verdicts if v.outcome is Outcome.HOLDS}
    for verdict in verdicts:
        reason = ""
        if verdict.outcome is Outcome.HOLDS and cases.get(verdict.claim, verdict.claim) not in found:
            reason = VACUOUS
        elif machine.dropped_guards:
            reason = _unfounded(machine, verdict)
        yield replace(verdict, outcome=Outcome.NOT_ESTABLISHED, reason=reason) if reason else verdict


def _unfounded(machine: Machine, verdict: Verdict) -> str:
    """Why the verdict on a projection does not carry over to the whole; empty when it does."""
    if verdict.outcome is Outcome.REFUTED:
        return IN_PROJECTION
    if verdict.outcome is Outcome.HOLDS and verdict.claim in {w.name for w in machine.witnesses}:
        return FOUND_IN_PROJECTION
    if verdict.outcome is Outcome.HOLDS and verdict.claim in {
        p.name for p in machine.properties if p.kind == "progress"
    }:
        return HOLDS_IN_PROJECTION
    return ""


def telling(machine: Machine, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Of the judged verdicts of one run, those that say something: not what a complete search did not come across."""
    witnesses = {w.name for w in machine.witnesses}
    for verdict in verdicts:
        missed = verdict.claim in witnesses and bool(verdict.numbers.get("complete"))
        if verdict.outcome is not Outcome.NOT_ESTABLISHED or not (missed or verdict.reason in SILENT):
            yield verdict


def across(machine: Machine, runs: Sequence[Run], *, progress: bool = True) -> Iterator[Verdict]:
    """One verdict for each property and witness of the machine, over all runs; `progress` false leaves progress out."""
    answers: dict[str, list[tuple[str, Verdict]]] = {}
    for run in runs:
        for verdict in run.verdicts:
            answers.setdefault(verdict.claim, []).append((run.scope, verdict))
    asked = [p.name for p in machine.properties if progress or p.kind != "progress"]
    for claim in (*asked, *(w.name for w in machine.witnesses)):
        yield _together(claim, answers.get(claim, []))


def _together(claim: str, answers: Sequence[tuple[str, Verdict]]) -> Verdict:
    refuted = next((v for _, v in answers if v.outcome is Outcome.REFUTED), None)
    if refuted is not None:
        return refuted
    held = [(scope, v) for scope, v in answers if v.outcome is Outcome.HOLDS]
    if held:
        assumed = tuple(dict.fromkeys(a for _, v in held for a in v.assumptions))
        return Verdict(claim, Outcome.HOLDS, ENGINE, ", ".join(dict.fromkeys(s for s, _ in held)), assumed)
    scopes = ", ".join(dict.fromkeys(s for s, _ in answers))
    reason = (
        "; ".join(dict.fromkeys(v.reason for _, v in answers))
        or "no scope has all the state that it speaks of"
    )
    return Verdict(claim, Outcome.NOT_ESTABLISHED, ENGINE, scopes, reason=reason)
