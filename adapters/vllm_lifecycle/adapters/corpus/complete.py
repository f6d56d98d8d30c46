"""Complete scopes: those that are explored to the end, with their exact counts, which are the same in every run.

A default scope is meant to be exhausted when its sequences are bounded by what there is to do and not by their length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import msgspec

from vllm_lifecycle.adapters.vllm.config import Unusable, Workshop
from vllm_lifecycle.adapters.vllm.extension import extension_of
from vllm_lifecycle.adapters.vllm.scope import LONG, Scope
from vllm_lifecycle.adapters.vllm.search import Search


@dataclass(frozen=True)
class Count:
    """What one scope has on one class."""

    release: str
    name: str
    scope: str
    size: str
    states: int
    transitions: int
    depth: int


def counts(target: str, seconds: float, tell: Callable[[str], None]) -> list[Count]:
    """Exhaust the complete scopes of a class; one that does not end within that many seconds is told and left out."""
    found = []
    for scope in extension_of(Workshop(target, Scope("any")).cls).portfolio():
        if scope.events >= LONG:
            try:
                found.append(count(target, scope, seconds))
            except Unusable as why:
                tell(str(why))
    return found


def count(target: str, scope: Scope, seconds: float) -> Count:
    """Exhaust one scope; raises Unusable when it does not end within that many seconds."""
    shop = Workshop(target, scope)
    c = Search(shop, 0).run(seconds, exhaustive_part=1.0).coverage
    if not c.complete:
        raise Unusable(f"{scope.name} is not exhausted within {seconds:g} s: {c}")
    omni = "omni " if target.startswith("vllm_omni") else ""
    name = target.rpartition(":")[2]
    return Count(
        f"{omni}{shop.version}", name, scope.name, size(shop.scope), c.states, c.transitions, c.depth
    )


def size(scope: Scope) -> str:
    """The bounds of a scope in words."""
    return f"{scope.requests} x {scope.blocks}, {scope.depth} in flight"


def text(found: Sequence[Count]) -> str:
    """As JSON."""
    return json.dumps([asdict(c) for c in found])


def read(data: str) -> list[Count]:
    """From JSON; ValueError when it is none."""
    try:
        return msgspec.json.decode(data, type=list[Count])
    except msgspec.DecodeError as error:
        raise ValueError(f"no counts of complete scopes: {error}") from None


HEADING = "## Complete scopes"
COLUMNS = "| release | class | scope | requests x blocks | states | transitions | longest sequence |"


def section(found: Sequence[Count]) -> Iterator[str]:
    """The part of the document about them."""
    yield HEADING
    yield ""
    yield "Every sequence of events that the scope allows was played; each count is the same in every run (a test holds this"
    yield "table to the installed release)."
    yield ""
    yield COLUMNS
    yield "|---|---|---|---|---|---|---|"
    for c in found:
        yield f"| {c.release} | {c.name} | {c.scope} | {c.size} | {c.states} | {c.transitions} | {c.depth} |"
    yield ""


def pinned(document: str) -> list[Count]:
    """The counts as they stand in the document."""
    rows = document.partition(COLUMNS)[2].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [Count(r[0], r[1], r[2], r[3], int(r[4]), int(r[5]), int(r[6])) for r in cells]
