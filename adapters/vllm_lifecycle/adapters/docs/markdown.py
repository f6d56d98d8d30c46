"""Markdown as plain functions; every text from the specification goes through `cell` or `code`, so it cannot break a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WIDTH = 160
"""Longest line of a formula in a block of code; beyond that it is wrapped at a blank."""


def cell(text: str) -> str:
    """A text inside a table row: on one line, with bars, stars and angle brackets that do not count as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def code(text: str) -> str:
    """A text as code, inside a table or a sentence."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def codes(names: Iterable[str]) -> str:
    """Names as code, separated by commas."""
    return ", ".join(code(n) for n in names)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, with a blank line after it; the cells are Markdown already."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return [*lines, ""]


def link(name: str, page: str = "") -> str:
    """A link to the heading of that name, on this page or another."""
    return f"[`{name}`]({page}#{anchor(name)})"


def anchor(heading: str) -> str:
    """The anchor that code hosts make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def fence(language: str, lines: Iterable[str]) -> list[str]:
    """A fenced block, with a blank line after it."""
    return [f"```{language}", *lines, "```", ""]


def wrapped(line: str) -> list[str]:
    """A long formula on several lines."""
    lines: list[str] = []
    while len(line) > WIDTH:
        cut = line.rfind(" ", 40, WIDTH)
        if cut < 0:
            break
        lines.append(line[:cut])
        line = f"    {line[cut + 1 :]}"
    return [*lines, line]


def several(count: int, noun: str) -> str:
    """`1 mutant`, `3 mutants`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
