"""Saved findings as regression tests: each is written as the pytest that `--save` writes, and run with the installed release.

A saved test fails where its property falls, passes where it holds, and is skipped where its sequence cannot be played to the end.
What is claimed of them: they all fail on the release that they were found on, and those that count for a row pass on a release
where the row is known to be repaired.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vllm_lifecycle.adapters.vllm.as_test import test_text
from vllm_lifecycle.adapters.vllm.report import Finding, StepLine
from vllm_lifecycle.adapters.vllm.saved import MARK, load

from .rows import Row


@dataclass(frozen=True)
class Outcomes:
    """What the saved tests of some explorations did with one release: `failed`, `passed` or `skipped`, by finding."""

    release: str
    by_run: Mapping[str, tuple[str, ...]]
    """Exploration (its release and class) -> outcomes in the order of its findings."""

    @staticmethod
    def read(text: str) -> Outcomes:
        """From JSON; ValueError when it is none."""
        try:
            data = json.loads(text)
            return Outcomes(str(data["release"]), {k: tuple(v) for k, v in data["outcomes"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the outcomes of saved tests ({type(error).__name__}: {error})") from None

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"release": self.release, "outcomes": self.by_run})


def finding(data: Mapping[str, Any]) -> Finding:
    """A finding from its plain form; raises saved.NotAFinding."""
    known = load(json.dumps({"format": MARK, **data}))
    steps = tuple(StepLine(s["call"], s["breach"], tuple(s["changes"])) for s in data["steps"])
    return Finding(
        claim=known.claim,
        message=known.message,
        site=known.site,
        fault=data["fault"],
        breach=data["breach"],
        target=known.target,
        version=known.version,
        scope=known.scope,
        events=known.events,
        steps=steps,
    )


class _Reports:
    """A pytest plugin that remembers how each test ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The call decides, unless the test did not come to it."""
        if report.when == "call" or not report.passed:
            self.outcomes[Path(report.fspath).stem] = report.outcome


def outcomes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Write each finding as a pytest, run all of them here, and say how each ended."""
    reports = _Reports()
    with tempfile.TemporaryDirectory(prefix="vllm-lifecycle-") as folder:
        names = [f"test_{Path(folder).name.replace('-', '_')}_{n}" for n in range(len(findings))]
        for name, one in zip(names, findings, strict=True):
            text = test_text(one, name.removeprefix("test_"))
            Path(folder, f"{name}.py").write_text(text, encoding="utf-8")
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--import-mode=importlib"]
        pytest.main([*options, "-c", "/dev/null", "--rootdir", folder, folder], plugins=[reports])
    return tuple(reports.outcomes.get(name, "not run") for name in names)


def section(
    name: str, release: str, rows_of: Mapping[int, Sequence[Row]], told: Sequence[Outcomes]
) -> Iterator[str]:
    """The part of the table about one exploration: `rows_of` gives the rows that each of its findings counts for."""
    mine = [o for o in told if name in o.by_run]
    here = next((o.by_run[name] for o in mine if o.release == release), ())
    if not here:
        return
    failing = sum(outcome == "failed" for outcome in here)
    yield f"{name}: {failing} of {len(here)} saved tests fail on {release}, where they were found."
    yield ""
    later = [o for o in mine if o.release != release]
    if not later:
        return
    yield f"| row | saved tests | {' | '.join(f'on {o.release} | known there' for o in later)} |"
    yield f"|---|---|{'---|---|' * len(later)}"
    rows = {row.name: row for found in rows_of.values() for row in found}
    for row in rows.values():
        places = [i for i, found in rows_of.items() if row in found]
        cells = [f"{_counted([o.by_run[name][i] for i in places])} | {row.cells[o.release]}" for o in later]
        yield f"| {row.name} | {len(places)} | {' | '.join(cells)} |"
    yield ""


def _counted(ends: Sequence[str]) -> str:
    return ", ".join(f"{n} {end}" for end, n in sorted(Counter(ends).items()))
