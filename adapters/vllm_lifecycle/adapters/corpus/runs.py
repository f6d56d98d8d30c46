"""Explorations as they were saved, and which of a release's rows their findings count for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .omni_rows import ROWS as OMNI_ROWS
from .recognise import Found
from .rows import Row
from .vllm_rows import ROWS as VLLM_ROWS

SEARCHED = re.compile(r"(?P<steps>\d+) transitions .* (?P<walked>\d+) events; (?P<seconds>[\d.]+) s")
"""What a line of the coverage counts (see `Coverage.__str__`)."""


@dataclass(frozen=True)
class Run:
    """One exploration as it was saved."""

    release: str
    name: str
    seconds: float
    findings: tuple[Found, ...]
    coverage: tuple[str, ...]

    @staticmethod
    def read(text: str) -> Run:
        """From JSON; ValueError when it is no saved exploration."""
        try:
            data: Mapping[str, Any] = json.loads(text)
            target = str(data["target"])
            omni = target.startswith("vllm_omni")
            return Run(
                f"omni {data['version']}" if omni else str(data["version"]),
                target.rpartition(":")[2],
                float(data["seconds"]),
                tuple(Found.read(f) for f in data["findings"]),
                tuple(data["coverage"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved exploration ({type(error).__name__}: {error})") from None

    @property
    def title(self) -> str:
        """Release and class."""
        return f"{self.release} {self.name}"

    @property
    def rate(self) -> float:
        """Calls of the scheduler's public API a second while searching, over all scopes; 0 when nothing was searched."""
        parts = [found for line in self.coverage if (found := SEARCHED.search(line))]
        seconds = sum(float(p["seconds"]) for p in parts)
        return sum(int(p["steps"]) + int(p["walked"]) for p in parts) / seconds if seconds else 0.0

    def shortest(self, row: Row) -> Found | None:
        """The shortest finding that counts for the row."""
        if row.recognise is None:
            return None
        hits = [f for f in self.findings if row.recognise(f)]
        return min(hits, key=lambda f: len(f.events)) if hits else None


def rows_of(release: str) -> list[Row]:
    """The rows that say something on a release."""
    return [row for row in (*VLLM_ROWS, *OMNI_ROWS) if release in row.cells]


def found(release: str, runs: Sequence[Run], cell: str = "misbehaves") -> tuple[int, int]:
    """How many of the rows with that cell were found on a release, by any of its classes; and how many there are."""
    rows = [row for row in rows_of(release) if row.cells[release] == cell]
    mine = [run for run in runs if run.release == release]
    return sum(any(run.shortest(row) for run in mine) for row in rows), len(rows)
