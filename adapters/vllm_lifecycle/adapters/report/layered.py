"""A layered drawing of a directed graph, from left to right (Sugiyama): where boxes stand, and where arrows pass.

Arrows that close a circle count as turned, boxes are layered by their longest path, long arrows pass through a point in each
layer, layers are ordered by the mean of their neighbours, and each arrow meets a box at a port of its own. Everything is
deterministic: the same graph is the same drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

PORT, GAP, SPACE, MARGIN = 19.0, 66.0, 22.0, 12.0
"""In pixels: distance of ports, of layers, of boxes in a layer, and the border."""
SWEEPS = 12

Names = tuple[str, ...]
"""What stands in one box."""
Link = tuple[Names, Names]


@dataclass
class Slot:
    """A box, or the point at which a long arrow passes a layer."""

    layer: int
    height: float
    width: float = 0.0
    names: Names = ()
    y: float = 0.0
    """The middle."""
    left: list[tuple[int, int]] = field(default_factory=list)
    """(neighbour, arrow) on the side of the layer before."""
    right: list[tuple[int, int]] = field(default_factory=list)


class Layout:
    """The drawing of the graph of these links, seen from `start`; what leaves `end` counts as turned."""

    def __init__(
        self,
        start: Names,
        links: Sequence[Link],
        size: Callable[[Names], tuple[float, float]],
        end: Names = (),
    ) -> None:
        self.links = links
        self.names = list(dict.fromkeys((start, *(name for link in links for name in link))))
        back = self._back(start, end)
        self.turned = [link in back for link in links]
        layer = self._layers()
        ports = self._ports()
        self.slots = []
        for names in self.names:
            width, height = size(names)
            self.slots.append(Slot(layer[names], max(height, PORT * ports[names]), width, names))
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
            self.slots.append(Slot(layer, PORT))
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
            width = max(self.slots[i].width for i in layer)
            out.append((x, width))
            x += width + GAP
        return out

    def port(self, slot: int, arrow: int, right: bool) -> float:
        """The height at which an arrow meets a box: in the order of what is at its other end."""
        here = self.slots[slot]
        side = sorted(here.right if right else here.left, key=lambda hop: (self.slots[hop[0]].y, hop[1]))
        place = [number for _, number in side].index(arrow)
        return here.y + PORT * (place - (len(side) - 1) / 2)
