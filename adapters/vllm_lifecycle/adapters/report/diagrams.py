"""Lifecycle diagrams: states in layers from left to right, arrows by number, no text that could collide.

Each arrow carries the number of its row in the table of actions. States of one family that lead to the same states share a box.
A lifecycle with many arrows is two diagrams, while it lives and how it ends, rather than a small one. Rejected: Graphviz and
Mermaid (a program to install, or megabytes in each page), networkx and grandalf (no ports: arrows would overlap).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_lifecycle.adapters.report.lanes import status_kind
from vllm_lifecycle.adapters.report.layered import MARGIN, Layout, Link, Names
from vllm_lifecycle.statemachine.tables import Table

MOST = 24
"""Arrows of one diagram, when it can be split."""
CHARACTER, LINE, PAD = 7.4, 15.0, 20.0
"""In pixels: width of a character, distance of lines, and what is left free in a box."""
LONG = 15
"""Characters from which on a name is written in two lines."""


@dataclass(frozen=True, slots=True)
class Node:
    """A box with the names of its states, as `lines` to write."""

    number: int
    names: tuple[str, ...]
    lines: tuple[str, ...]
    kind: str
    initial: bool
    x: float
    y: float
    width: float
    height: float

    @property
    def first(self) -> float:
        """Where the first line stands."""
        return self.y + self.height / 2 - LINE * (len(self.lines) - 1) / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow with its number, the path to draw and where the number stands."""

    number: int
    source: int
    target: int
    names: tuple[str, str]
    actions: tuple[str, ...]
    path: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Diagram:
    """One picture."""

    id: str
    title: str
    doc: str
    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Arrow, ...]


def diagrams(table: Table) -> Iterator[Diagram]:
    """The pictures of one lifecycle."""
    links: dict[Link, list[str]] = {}
    boxes = _families(table)
    for row in table.rows:
        link = boxes[row.source.name], boxes[row.target.name]
        if link[0] != link[1] and row.action not in links.setdefault(link, []):
            links[link].append(row.action)
    start = boxes[table.initial.name]
    if len(links) <= MOST:
        yield _drawn(table.name, f"{table.name} lifecycle", table.doc, start, links)
        return
    leaving = {source for source, target in links if target == start}
    living = {k: v for k, v in links.items() if k[0] not in leaving and k[1] not in leaving}
    ending = {k: v for k, v in links.items() if k not in living}
    yield _drawn(f"{table.name}-lives", f"{table.name} lifecycle: while it lives", table.doc, start, living)
    yield _drawn(f"{table.name}-ends", f"{table.name} lifecycle: how it ends", table.doc, (), ending, start)


def _families(table: Table) -> dict[str, Names]:
    """The box of each state: states with the same first word that lead to the same states are one box."""
    families: dict[tuple[str, frozenset[object]], list[str]] = {}
    for state, following in table.successors.items():
        families.setdefault((state.name.partition("_")[0], following), []).append(state.name)
    return {name: tuple(names) for names in families.values() for name in names}


def _lines(names: Names) -> tuple[str, ...]:
    """How the names are written in a box: a long one that stands alone in two lines."""
    if len(names) != 1 or len(names[0]) < LONG:
        return names
    cut = names[0].rindex("_", 0, LONG) + 1
    return names[0][:cut], names[0][cut:]


def _size(names: Names) -> tuple[float, float]:
    """Width and least height of a box."""
    lines = _lines(names)
    return CHARACTER * max(map(len, lines)) + PAD, LINE * (len(lines) + 1)


def _drawn(
    id: str, title: str, doc: str, start: Names, links: dict[Link, list[str]], end: Names = ()
) -> Diagram:
    """The picture from `start` (or wherever the first arrow begins); `end` is put last."""
    layout = Layout(start or next(iter(links))[0], list(links), _size, end)
    columns = layout.columns()
    edges = tuple(
        _arrow(layout, columns, number, tuple(actions)) for number, actions in enumerate(links.values())
    )
    nodes = tuple(
        Node(
            number,
            slot.names,
            _lines(slot.names),
            status_kind(slot.names[0]),
            slot.names == start,
            columns[slot.layer][0],
            slot.y - slot.height / 2,
            columns[slot.layer][1],
            slot.height,
        )
        for number, slot in enumerate(layout.slots)
        if slot.names
    )
    width = sum(columns[-1]) + MARGIN
    height = max(s.y + s.height / 2 for s in layout.slots) + MARGIN
    return Diagram(f"lifecycle-{id}", title, doc, round(width), round(height), nodes, edges)


def _arrow(
    layout: Layout, columns: Sequence[tuple[float, float]], number: int, actions: tuple[str, ...]
) -> Arrow:
    route, turned = layout.routes[number], layout.turned[number]
    points: list[tuple[float, float]] = []
    for here, there in pairwise(route):
        left, right = layout.slots[here], layout.slots[there]
        start = columns[left.layer][0] + columns[left.layer][1]
        points += [
            (start, layout.port(here, number, True)),
            (columns[right.layer][0], layout.port(there, number, False)),
        ]
    if turned:
        points.reverse()
    source, target = layout.links[number]
    x, y = points[0]
    return Arrow(
        number + 1,
        layout.names.index(source),
        layout.names.index(target),
        (", ".join(source), ", ".join(target)),
        actions,
        _curve(points),
        round(x + (-20 if turned else 20), 1),
        round(y, 1),
    )


def _curve(points: Iterable[tuple[float, float]]) -> str:
    """A path that leaves and enters every layer level."""
    (x, y), *more = points
    out = [f"M{x:.1f} {y:.1f}"]
    for at, (to_x, to_y) in enumerate(more):
        if at % 2:
            out.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            bend = (to_x - x) * 0.5
            out.append(f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(out)
