"""What the tests came to: with vLLM's own class, with another one, and which fail with the other one only."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from own_tests.reasons import reason_for


@dataclass(frozen=True)
class Result:
    """How a test ended, and its first line when it failed."""

    outcome: str
    reason: str


Results = dict[str, Result]


def read(path: Path) -> Results:
    """The last line of each test; a failure stays a failure (a test may fail at its end as well)."""
    found: Results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        note = json.loads(line)
        known = found.get(note["test"])
        if known is None or known.outcome != "failed":
            found[note["test"]] = Result(note["outcome"], note["reason"])
    return found


def only_ours(stock: Results, ours: Results) -> dict[str, Result]:
    """Tests that pass with vLLM's own class and not with the other one."""
    missing = Result("failed", "did not run: the process ended before")
    return {
        test: ours.get(test, missing)
        for test, result in stock.items()
        if result.outcome == "passed" and ours.get(test, missing).outcome != "passed"
    }


def table(subject: str, stock: Results, ours: Results, release: str) -> tuple[str, int]:
    """The table as Markdown, and how many failures have no reason."""
    lines = [
        f"## {subject}",
        "",
        "| file | tests | pass with vLLM's own | cannot pass here | pass with ours | fail with ours only |",
        "|---|---|---|---|---|---|",
    ]
    worse = only_ours(stock, ours)
    files = sorted({test.partition("::")[0] for test in stock})
    totals: Counter[str] = Counter()
    for file in files:
        of_file = {t: r for t, r in stock.items() if t.partition("::")[0] == file}
        row = Counter(
            tests=len(of_file),
            stock=sum(r.outcome == "passed" for r in of_file.values()),
            ours=sum(t in ours and ours[t].outcome == "passed" for t in of_file),
            worse=sum(t in worse for t in of_file),
        )
        totals += row
        short = file.removeprefix("tests/v1/")
        lines.append(_row(short, row))
    lines += [_row("all", totals), ""]
    unexplained = 0
    if worse:
        lines += ["| fails with ours only | how | reason |", "|---|---|---|"]
        for test, result in sorted(worse.items()):
            why = reason_for(release, test)
            unexplained += not why
            how = result.reason.replace("|", "\\|")
            lines.append(f"| `{test.removeprefix('tests/v1/')}` | {how[:110]} | {why or '**none yet**'} |")
        lines.append("")
    return "\n".join(lines), unexplained


def _row(name: str, n: Counter[str]) -> str:
    return (
        f"| {name} | {n['tests']} | {n['stock']} | {n['tests'] - n['stock']} | {n['ours']} | {n['worse']} |"
    )
