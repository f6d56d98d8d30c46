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
IN_PROJECTION = "falls in the projection, which has more behaviour than the whole"


@dataclass(frozen=True)
class Run:
    """The judged verdicts on one scope, by all engines that looked at it."""

    scope: str
    verdicts: tuple[Verdict, ...]


def judged(machine: Machine, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The verdicts of one run: what holds without its case, or falls for want of guards, is not established."""
    cases = {w.of: w.name for w in machine.witnesses if w.of is not None}
    found = {v.claim for v in verdicts if v.outcome is Outcome.HOLDS}
    for verdict in verdicts:
        case = cases.get(verdict.claim)
        if verdict.outcome is Outcome.HOLDS and case is not None and case not in found:
            yield replace(verdict, outcome=Outcome.NOT_ESTABLISHED, reason=VACUOUS)
        elif verdict.outcome is Outcome.REFUTED and machine.dropped_guards:
            yield replace(verdict, outcome=Outcome.NOT_ESTABLISHED, reason=IN_PROJECTION)
        else:
            yield verdict


def telling(machine: Machine, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """Of the judged verdicts of one complete run, those that say something: not what does not occur in its scope."""
    witnesses = {w.name for w in machine.witnesses}
    for verdict in verdicts:
        silent = verdict.reason == VACUOUS or (
            verdict.claim in witnesses and bool(verdict.numbers.get("complete"))
        )
        if verdict.outcome is not Outcome.NOT_ESTABLISHED or not silent:
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
