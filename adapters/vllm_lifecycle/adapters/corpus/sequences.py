"""Sequences of calls that were found to break vLLM's own classes, kept so that they can be played on another class.

One line of JSON each, in `docs/corpus/RELEASE.jsonl`: the finding as `--save` writes it, without the story of its steps, and the
rows that it counts for, or what kind it is beyond them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_lifecycle.adapters.vllm.saved import MARK, Saved, load

from .recognise import Found
from .runs import Run, rows_of
from .triage import explain

LEFT_OUT = frozenset({"steps", "kind", "message", "breach"})
"""Parts of a finding that say how it looked, and not what is to be played."""


@dataclass(frozen=True)
class Known:
    """One sequence: what it is, and the names of the rows that it counts for (none: a kind beyond the rows)."""

    saved: Saved
    rows: tuple[str, ...]
    what: str

    @property
    def title(self) -> str:
        """Its row or its kind, and the property that fell."""
        return f"{' '.join(self.rows) or self.what}: {self.saved.claim}"


def read(text: str) -> list[Known]:
    """From lines of JSON; raises saved.NotAFinding, a ValueError, when one is none."""
    found = []
    for line in text.splitlines():
        saved, data = load(line), json.loads(line)
        found.append(Known(saved, tuple(data.get("rows", ())), str(data.get("what", ""))))
    return found


def kept(folder: Path) -> list[Known]:
    """All sequences of a folder, in the order of its files; those of each file as they stand."""
    return [one for file in sorted(folder.glob("*.jsonl")) for one in read(file.read_text(encoding="utf-8"))]


def lines(explorations: Sequence[str]) -> str:
    """The findings of saved explorations as lines to keep, each sequence once; ValueError when one is no exploration."""
    out: dict[str, None] = {}
    for text in explorations:
        run = Run.read(text)
        rows = rows_of(run.release)
        for data, one in zip(json.loads(text)["findings"], run.findings, strict=True):
            names = [row.name for row in rows if row.recognise and row.recognise(one)]
            out[json.dumps(_line(data, names, one), ensure_ascii=False)] = None
    return "".join(f"{line}\n" for line in out)


def _line(data: dict[str, Any], names: list[str], one: Found) -> dict[str, Any]:
    beyond = explain(one) if not names else None
    what = {"rows": names, "what": beyond.title if beyond else ""}
    return {"format": MARK, **what, **{k: v for k, v in data.items() if k not in LEFT_OUT}}


def of_row(known: Sequence[Known], row: str) -> Iterator[Known]:
    """Those that count for a row."""
    return (one for one in known if row in one.rows)
