"""Verdicts: what a check answers. A value that carries its scope, never "ok".

Three outcomes. HOLDS: established for the whole scope named. REFUTED: a counterexample is at hand. NOT_ESTABLISHED: a bound
was hit, a solver said unknown, the user interrupted, or a witness was not found. A report's outcome is the worst of its
verdicts; the exit code follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """Three-valued result of a check."""

    HOLDS = "holds"
    REFUTED = "refuted"
    NOT_ESTABLISHED = "not established"


VACUOUS = "its case is not reachable in this scope"
"""Why a property that holds only for want of cases is not established."""

EXIT_CODES = {Outcome.HOLDS: 0, Outcome.REFUTED: 2, Outcome.NOT_ESTABLISHED: 3}
USAGE_ERROR = 1


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a counterexample: the action with its parameters, and the cells it changed (`name` -> text)."""

    action: str
    params: tuple[tuple[str, str], ...]
    changes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.action}({', '.join(f'{k}={v}' for k, v in self.params)})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one claim.

    `claim` is a property, witness, obligation or mutant name; `engine` names who answers (induction/z3, explicit,
    liveness, explorer); `scope` says for what (any size, `3 requests x 3 blocks`, ...); `assumptions` lists fairness,
    dropped guards, collision odds, lossy hashing; `reason` says why it is not established; `trace` is the counterexample;
    `numbers` are counts and seconds for reports.
    """

    claim: str
    outcome: Outcome
    engine: str
    scope: str
    assumptions: tuple[str, ...] = ()
    reason: str = ""
    trace: tuple[TraceStep, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)


def worst(verdicts: Iterable[Verdict]) -> Outcome:
    """REFUTED before NOT_ESTABLISHED before HOLDS; nothing checked is not established."""
    outcomes = {v.outcome for v in verdicts}
    for outcome in (Outcome.REFUTED, Outcome.NOT_ESTABLISHED, Outcome.HOLDS):
        if outcome in outcomes:
            return outcome
    return Outcome.NOT_ESTABLISHED
