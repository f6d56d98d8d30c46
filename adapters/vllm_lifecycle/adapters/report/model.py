"""The report of one command: its sections of verdicts, and what follows from them.

A section is one question put to one engine (the proof, the exploration of one scope, the mutants). The report's outcome is the
worst of all verdicts; an interrupted section carries a verdict that says so, therefore a partial report is never "holds".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from vllm_lifecycle.spec.check.verdict import EXIT_CODES, Outcome, Verdict, worst

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stage:
    """Work still to do: a title and the verdicts, made while they are read."""

    title: str
    run: Callable[[Progress], Iterable[Verdict]]


@dataclass(slots=True)
class Section:
    """The verdicts of one stage, and how long they took."""

    title: str
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The worst of the section; nothing checked is not established."""
        return worst(self.verdicts)

    @property
    def tally(self) -> dict[Outcome, int]:
        """How many verdicts of each outcome, worst first, without zeros."""
        counts = Counter(v.outcome for v in self.verdicts)
        order = (Outcome.REFUTED, Outcome.NOT_ESTABLISHED, Outcome.HOLDS)
        return {outcome: counts[outcome] for outcome in order if counts[outcome]}


@dataclass(slots=True)
class Report:
    """All sections of one command."""

    command: str
    sections: list[Section] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The worst verdict of all sections."""
        return worst(Verdict(s.title, s.outcome, "", "") for s in self.sections)

    @property
    def exit_code(self) -> int:
        """0 holds, 2 refuted, 3 not established."""
        return EXIT_CODES[self.outcome]
