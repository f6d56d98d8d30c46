"""Differences that are intended and end a run: each row names the defect of the original that justifies it.

A row explains a divergence as a whole, from the differences and from what has happened in the pair; the first row that does so
is counted.  What no row explains is a failure.  `defect` is a row of docs/corpus.md, or says in words what the original does.
A mend of the original (mended.py) is better where it can be written: the run goes on, and nothing else can hide behind it. Rows
are for what cannot be mended, such as a call of the original that raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.differential.pair import Pair
from tests.differential.plain import Difference


@dataclass(frozen=True)
class Row:
    """A named intended difference."""

    name: str
    defect: str
    explains: Callable[[str, Sequence[Difference], Pair], bool]
    """From the name of the call, the differences and the pair, which has stopped there."""


ROWS: tuple[Row, ...] = ()
"""In the order in which they are asked; none for vLLM itself, whose defects are mended (mended.py, mended032.py)."""


def explained(call: str, found: Sequence[Difference], pair: Pair) -> Row | None:
    """The first row that explains the divergence; None when none does."""
    return next((row for row in ROWS if row.explains(call, found, pair)), None)
