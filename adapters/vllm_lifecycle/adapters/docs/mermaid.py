"""State diagrams and flow charts in Mermaid; a diagram that would be unreadable is split, not shrunk.

A part holds at most `MOST` arrows. Parts follow the meaning when the caller gives them (while a request lives, how it ends);
whatever is still too large is cut between source states, so all arrows that leave a state stay in one picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

MOST = 30
"""Arrows in one diagram that a reader can still follow."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one node to another, with the lines of its label."""

    source: str
    target: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One picture of a larger whole."""

    title: str
    arrows: tuple[Arrow, ...]


def split(parts: Iterable[Part], most: int = MOST) -> Iterator[Part]:
    """The parts, each that is too large cut between its source states; empty ones left out."""
    for part in parts:
        if len(part.arrows) <= most:
            if part.arrows:
                yield part
            continue
        pieces = list(_pieces(part.arrows, most))
        for number, piece in enumerate(pieces, start=1):
            yield Part(f"{part.title} ({number} of {len(pieces)})", piece)


def _pieces(arrows: Sequence[Arrow], most: int) -> Iterator[tuple[Arrow, ...]]:
    piece: list[Arrow] = []
    for _, leaving in groupby(arrows, key=lambda a: a.source):
        group = list(leaving)
        for low in range(0, len(group), most):  # one state with too many exits is cut as well
            chunk = group[low : low + most]
            if piece and len(piece) + len(chunk) > most:
                yield tuple(piece)
                piece = []
            piece += chunk
    if piece:
        yield tuple(piece)


def states(arrows: Sequence[Arrow], initial: str = "") -> list[str]:
    """The lines of a state diagram; `initial` gets the start mark when it is in the picture.

    Where no state is both left and entered the picture goes sideways, or it would be as wide as it has states.
    """
    lines = ["stateDiagram-v2"]
    if not {a.source for a in arrows} & {a.target for a in arrows}:
        lines.append("    direction LR")
    if any(initial in (a.source, a.target) for a in arrows):
        lines.append(f"    [*] --> {initial}")
    for arrow in arrows:
        label = f" : {'<br/>'.join(arrow.labels)}" if arrow.labels else ""
        lines.append(f"    {arrow.source} --> {arrow.target}{label}")
    return lines


def flow(nodes: Iterable[str], arrows: Sequence[Arrow]) -> list[str]:
    """The lines of a flow chart without directions; a node's id is numbered, for some words (call) are Mermaid's own."""
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    lines = ["flowchart LR"]
    lines += [f'    {identifier}["{name}"]' for name, identifier in ids.items()]
    for arrow in arrows:
        label = f'|"{"<br/>".join(arrow.labels)}"|' if arrow.labels else ""
        lines.append(f"    {ids[arrow.source]} ---{label} {ids[arrow.target]}")
    return lines
