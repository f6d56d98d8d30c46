"""Lifecycle diagrams: states in layers from left to right, arrows by number, no text that could collide.

The layout is Sugiyama's: arrows that close a circle count as reversed, states are layered by their longest path, long arrows pass
through a point in each layer, and layers are ordered by the mean of their neighbours. Each arrow leaves and enters at a port of
its own and carries the number of its row in the table of actions. States of one family that lead to the same states share a box.
A lifecycle with many arrows is two diagrams, while it lives and how it ends, rather than a small one. Rejected: Graphviz and
Mermaid (a program to install, or megabytes in each page), networkx and grandalf (no ports: arrows would overlap).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from vllm_lifecycle.adapters.report.lanes import status_kind
from vllm_lifecycle.statemachine.tables import Table

MOST = 24
"""Arrows of one diagram, when it can be split."""
CHARACTER, LINE, PORT, GAP, SPACE, MARGIN = 7.4, 15.0, 19.0, 66.0, 22.0, 12.0
"""In pixels: width of a character, distance of lines, of ports, of layers, of boxes in a layer, and the border."""
SWEEPS = 12
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


Names = tuple[str, ...]
Link = tuple[Names, Names]


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


@dataclass
class _Slot:
    """A box, or the point at which a long arrow passes a layer."""

    layer: int
    height: float
    names: Names = ()
    y: float = 0.0
    """The middle."""
    left: list[tuple[int, int]] = field(default_factory=list)
    """(neighbour, arrow) on the side of the layer before."""
    right: list[tuple[int, int]] = field(default_factory=list)


class _Layout:
    def __init__(self, start: Names, links: Sequence[Link], end: Names = ()) -> None:
        self.links = links
        self.names = list(dict.fromkeys((start, *(name for link in links for name in link))))
        back = self._back(start, end)
        self.turned = [link in back for link in links]
        layer = self._layers()
        ports = self._ports()
        self.slots = [
            _Slot(layer[n], max(LINE * (len(_lines(n)) + 1), PORT * ports[n]), n) for n in self.names
        ]
        self.routes = [self._route(number) for number in range(len(links))]
        self.layers = [
            [i for i, slot in enumerate(self.slots) if slot.layer == at]
            for at in range(1 + max(s.layer for s in self.slots))
        ]
        self._order()
        self._place()

    def _back(self, start: Names, end: Names) -> set[Link]:
        """The arrows that close a circle, seen from the start, and those that leave the end."""
        back = {link for link in self.links if link[0] == end}
        done: set[Names] = set()
        path: list[Names] = []

        def visit(name: Names) -> None:
            path.append(name)
            for link in self.links:
                if link[0] != name or name == end:
                    continue
                if link[1] in path:
                    back.add(link)
                elif link[1] not in done:
                    visit(link[1])
            done.add(path.pop())

        for name in (start, *self.names):
            if name not in done:
                visit(name)
        return back

    def _forward(self, number: int) -> Link:
        source, target = self.links[number]
        return (target, source) if self.turned[number] else (source, target)

    def _layers(self) -> dict[Names, int]:
        layer = dict.fromkeys(self.names, 0)
        for _ in self.names:
            for number in range(len(self.links)):
                source, target = self._forward(number)
                layer[target] = max(layer[target], layer[source] + 1)
        return layer

    def _ports(self) -> dict[Names, int]:
        """How many arrows meet at the busier side of each box."""
        sides: dict[tuple[Names, bool], int] = {}
        for number in range(len(self.links)):
            source, target = self._forward(number)
            for side in ((source, True), (target, False)):
                sides[side] = sides.get(side, 0) + 1
        return {n: max(sides.get((n, True), 0), sides.get((n, False), 0)) for n in self.names}

    def _route(self, number: int) -> list[int]:
        """The slots that an arrow passes, from left to right."""
        source, target = (self.names.index(n) for n in self._forward(number))
        route = [source]
        for layer in range(self.slots[source].layer + 1, self.slots[target].layer):
            self.slots.append(_Slot(layer, PORT))
            route.append(len(self.slots) - 1)
        route.append(target)
        for here, there in pairwise(route):
            self.slots[here].right.append((there, number))
            self.slots[there].left.append((here, number))
        return route

    def _order(self) -> None:
        best, fewest = [list(layer) for layer in self.layers], self._crossings()
        for sweep in range(SWEEPS):
            at = {i: n for layer in self.layers for n, i in enumerate(layer)}
            down = sweep % 2 == 0
            for layer in self.layers if down else reversed(self.layers):
                weight = {}
                for i in layer:
                    near = self.slots[i].left if down else self.slots[i].right
                    weight[i] = fmean(at[n] for n, _ in near) if near else at[i]
                layer.sort(key=lambda i: weight[i])
                at.update({i: n for n, i in enumerate(layer)})
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self.layers], crossings
        self.layers = best

    def _crossings(self) -> int:
        at = {i: n for layer in self.layers for n, i in enumerate(layer)}
        found = 0
        for layer in self.layers:
            hops = [(at[i], at[n]) for i in layer for n, _ in self.slots[i].right]
            found += sum((a - c) * (b - d) < 0 for k, (a, b) in enumerate(hops) for c, d in hops[k + 1 :])
        return found

    def _place(self) -> None:
        """Heights: each slot towards the mean of its neighbours, as far as the order and the distances allow."""
        for layer in self.layers:
            self._settle(layer, [0.0] * len(layer))
        for sweep in range(SWEEPS):
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                wanted = [
                    fmean(self.slots[n].y for n, _ in ((*slot.left, *slot.right) or ((i, 0),)))
                    for i in layer
                    for slot in (self.slots[i],)
                ]
                self._settle(layer, wanted)
        top = min(s.y - s.height / 2 for s in self.slots)
        for slot in self.slots:
            slot.y += MARGIN - top

    def _settle(self, layer: list[int], wanted: list[float]) -> None:
        """The nearest heights to those wanted that keep slots apart (means of blocks that would overlap)."""
        blocks: list[tuple[float, int]] = []
        offset = 0.0
        offsets = []
        for place, i in enumerate(layer):
            slot = self.slots[i]
            before = self.slots[layer[place - 1]] if place else None
            offset += (before.height + slot.height) / 2 + SPACE if before else 0.0
            offsets.append(offset)
            blocks.append((wanted[place] - offset, 1))
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                (a, m), (b, n) = blocks[-2:]
                blocks[-2:] = [((a * m + b * n) / (m + n), m + n)]
        bases = [base for base, count in blocks for _ in range(count)]
        for i, base, offset in zip(layer, bases, offsets, strict=True):
            self.slots[i].y = base + offset

    def columns(self) -> list[tuple[float, float]]:
        """(left edge, width) of each layer."""
        out, x = [], MARGIN
        for layer in self.layers:
            texts = [len(line) for i in layer for line in _lines(self.slots[i].names)]
            width = CHARACTER * max(texts, default=0) + 20
            out.append((x, width))
            x += width + GAP
        return out

    def port(self, slot: int, arrow: int, right: bool) -> float:
        """The height at which an arrow meets a box: in the order of what is at its other end."""
        here = self.slots[slot]
        side = sorted(here.right if right else here.left, key=lambda hop: (self.slots[hop[0]].y, hop[1]))
        place = [number for _, number in side].index(arrow)
        return here.y + PORT * (place - (len(side) - 1) / 2)


def _drawn(
    id: str, title: str, doc: str, start: Names, links: dict[Link, list[str]], end: Names = ()
) -> Diagram:
    """The picture from `start` (or wherever the first arrow begins); `end` is put last."""
    layout = _Layout(start or next(iter(links))[0], list(links), end)
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
    layout: _Layout, columns: Sequence[tuple[float, float]], number: int, actions: tuple[str, ...]
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
