"""The state graph of a complete, unreduced search: numbered states, edges with the fair action instance that takes them.

Steps that change nothing are left out: every state may stutter anyway, and fairness speaks of steps that change the state
(the angle-bracket actions of TLA+). A fair group is one action with its scalar parameters fixed; a set-valued parameter is
chosen within the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.planes import Flags, Index, groups_for
from vllm_lifecycle.spec.check.explicit.search import Exploration
from vllm_lifecycle.spec.lang.machine import Action, Fairness
from vllm_lifecycle.spec.lang.sorts import DefinitionError

Numbers = npt.NDArray[np.int32]
CHUNK = 1 << 15


@dataclass(frozen=True, slots=True)
class Group:
    """One action with its scalar parameters fixed, and what may be assumed of it."""

    action: Action
    binding: tuple[tuple[str, Any], ...]

    @property
    def strong(self) -> bool:
        """Whether its fairness is strong."""
        return self.action.fairness is Fairness.STRONG


class Graph:
    """Edges sorted by source; `group` is the number of the fair group that takes the edge, or -1."""

    def __init__(self, exploration: Exploration) -> None:
        if exploration.symmetry:
            raise DefinitionError(
                "liveness needs the unreduced graph (fairness speaks of individuals): explore without symmetry"
            )
        if not exploration.complete or exploration.table is None:
            raise DefinitionError(f"liveness needs a complete search, but it was cut off: {exploration.cut}")
        self.model = exploration.model
        self.levels = exploration.levels
        self.words: list[Word] = [
            np.concatenate([lv[i] for lv in self.levels]) for i in range(self.model.layout.words)
        ]
        self.count = len(self.words[0])
        self._table = exploration.table
        self._table.number(self.words)
        self._group_rows()
        self._edges()

    def _group_rows(self) -> None:
        numbers: dict[tuple[str, tuple[tuple[str, Any], ...]], int] = {}
        self.groups: list[Group] = []
        of_row: list[int] = []
        for row in self.model.rows:
            action = row.instance.action
            if action.fairness is Fairness.NONE:
                of_row.append(-1)
                continue
            binding = tuple(row.instance.binding.items())
            key = (action.name, binding)
            if key not in numbers:
                numbers[key] = len(self.groups)
                self.groups.append(Group(action, binding))
            of_row.append(numbers[key])
        self._group_of_row = np.array(of_row, np.int16)

    def _edges(self) -> None:
        targets: list[Numbers] = []
        groups: list[npt.NDArray[np.int16]] = []
        degrees: list[Index] = []
        for low in range(0, self.count, CHUNK):
            chunk = [w[low : low + CHUNK] for w in self.words]
            batch = self.model.expander.expand(chunk)
            to = self._table.numbers(batch.words)
            moving = np.flatnonzero(to != batch.source + low)
            source = batch.source.take(moving)
            # A radix sort: sources within a chunk fit 16 bits.
            order = np.argsort(source.astype(np.uint16), kind="stable")
            targets.append(to.take(moving).take(order).astype(np.int32))
            groups.append(self._group_of_row.take(batch.row.take(moving).take(order)))
            degrees.append(np.bincount(source, minlength=len(chunk[0])))
        self.target = np.concatenate(targets)
        self.group = np.concatenate(groups)
        degree = np.concatenate(degrees)
        self.start = np.zeros(self.count + 1, np.intp)
        np.cumsum(degree, out=self.start[1:])
        self.source = np.repeat(np.arange(self.count, dtype=np.int32), degree)
        by_group = np.argsort(self.group, kind="stable")
        ends = np.searchsorted(self.group.take(by_group), np.arange(len(self.groups) + 1))
        self.edges_of = [by_group[ends[g] : ends[g + 1]] for g in range(len(self.groups))]
        self.some_fair = np.zeros(self.count, bool)
        self.some_fair[self.source[self.group >= 0]] = True

    def group_of_row(self, row: int) -> int:
        """The fair group of a row, or -1."""
        return int(self._group_of_row[row])

    def enabled(self, group: int) -> Flags:
        """The states from which the group takes some step."""
        flags = np.zeros(self.count, bool)
        flags[self.source.take(self.edges_of[group])] = True
        return flags

    def truth(self, nodes: list[int]) -> list[Flags]:
        """For each formula the states in which it holds."""
        network = self.model.state_network()
        planes = np.array([network.plane(n) for n in nodes], np.intp)
        result = [np.zeros(self.count, bool) for _ in nodes]
        for low in range(0, self.count, CHUNK):
            chunk = [w[low : low + CHUNK] for w in self.words]
            size = len(chunk[0])
            found = network.evaluate(chunk).take(planes, axis=0)
            groups = groups_for(size)
            bits = np.unpackbits(
                found.view(np.uint8).reshape(len(nodes), groups, 8), axis=2, bitorder="little"
            )
            for flags, part in zip(result, bits, strict=True):
                flags[low : low + size] = part.T.reshape(-1)[:size].view(bool)
        return result

    def edges_from(self, states: Index) -> Index:
        """Numbers of all edges that leave the given states, in order of the states."""
        first = self.start.take(states)
        degree = self.start.take(states + 1) - first
        total = int(degree.sum())
        if not total:
            return np.zeros(0, np.intp)
        offsets = np.repeat(first - np.concatenate(([0], np.cumsum(degree)[:-1])), degree)
        return offsets + np.arange(total)

    def reach(self, seeds: Index, within: Flags, goal: Flags | None = None) -> tuple[Flags, Index, int]:
        """Forward search from distinct seeds: states reached, the edge each was reached by (-1: seed), a goal or -1."""
        seen = np.zeros(self.count, bool)
        by = np.full(self.count, -1, np.intp)
        front = seeds[within.take(seeds)]
        seen[front] = True
        while len(front):
            if goal is not None:
                hits = np.flatnonzero(goal.take(front))
                if len(hits):
                    return seen, by, int(front[hits[0]])
            edges = self.edges_from(front)
            to = self.target.take(edges)
            new = np.flatnonzero(within.take(to) & ~seen.take(to))
            to, edges = to.take(new), edges.take(new)
            by[to] = edges
            seen[to] = True
            # Of several edges to one state the last one written stays: that one stands for the state.
            front = to[by.take(to) == edges]
        return seen, by, -1
