"""Expansion: all enabled rows of many states at once.

Rows stand in the order of a decision tree over fields: a node splits its states by the value of one field and hands each part
to the rows that ask for that value, so most rows never look at most states. Where states times rows is small, the whole
subtree is one comparison of a matrix; that is also the path for tiny frontiers. Large leaves go row by row, with the row's
masks as scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_lifecycle.spec.check.explicit.circuit import Circuit
from vllm_lifecycle.spec.check.explicit.layout import ONES, WORD, Field, Layout, Word
from vllm_lifecycle.spec.check.explicit.rows import Row

Index = npt.NDArray[np.intp]
MATRIX = 1 << 14
LEAF_ROWS = 6
LONG = 768


@dataclass(frozen=True, slots=True)
class Batch:
    """Transitions: for each the index of its source state, its row, and the words of its successor."""

    source: Index
    row: Index
    words: list[Word]


@dataclass(slots=True)
class _Node:
    """Rows low..high; `field` splits the states for `children` (code -> node), `rest` sees all of them."""

    low: int
    high: int
    tests: list[int]
    field: Field | None = None
    children: Sequence[tuple[int, _Node]] = ()
    rest: _Node | None = None


class _View:
    """Some of a chunk's states; words are gathered when they are first asked for."""

    def __init__(self, words: list[Word], index: Index | None) -> None:
        self.words = words
        self.index = index
        self.count = len(words[0]) if index is None else len(index)
        self._cache: dict[int, Word] = {}

    def __getitem__(self, word: int) -> Word:
        if self.index is None:
            return self.words[word]
        found = self._cache.get(word)
        if found is None:
            found = self._cache[word] = self.words[word].take(self.index)
        return found

    def where(self, chosen: Index) -> _View:
        return _View(self.words, chosen if self.index is None else self.index.take(chosen))


class Expander:
    """Successors of packed states; `rows` is in the order of row numbers in batches."""

    def __init__(self, rows: Sequence[Row], layout: Layout, circuit: Circuit) -> None:
        self.layout = layout
        self.circuit = circuit
        self.words = layout.words
        circuit.extend([np.zeros(1, np.uint64)] * self.words)
        self.total = circuit.words
        fields = list(layout.fields.values())
        order: list[int] = []
        self._root = self._build(list(range(len(rows))), rows, fields, order)
        self.rows = [rows[i] for i in order]
        self._mask = self._columns([r.guard[0] for r in self.rows], self.total)
        self._value = self._columns([r.guard[1] for r in self.rows], self.total)
        self._keep = self._columns([r.keep for r in self.rows], self.words)
        self._put = self._columns([r.put for r in self.rows], self.words)
        self._compile_moves()
        self._finish(self._root)

    def _columns(self, values: list[int], words: int) -> list[Word]:
        return [np.array([v >> (WORD * w) & ONES for v in values], np.uint64) for w in range(words)]

    def _build(self, rows: list[int], table: Sequence[Row], fields: list[Field], order: list[int]) -> _Node:
        low = len(order)
        best: Field | None = None
        best_gain = 0.0
        if len(rows) > LEAF_ROWS:
            for field in fields:
                mask = field.mask
                fixed = sum(1 for r in rows if table[r].guard[0] & mask == mask)
                gain = fixed * (1 - 1 / len(field.ordinals))
                if gain > best_gain:
                    best, best_gain = field, gain
        if best is None or best_gain < 2:
            order.extend(rows)
            return _Node(low, len(order), [])
        left = [f for f in fields if f is not best]
        groups: dict[int, list[int]] = {}
        rest: list[int] = []
        for r in rows:
            mask, value = table[r].guard
            if mask & best.mask == best.mask:
                groups.setdefault((value & best.mask) >> best.at, []).append(r)
            else:
                rest.append(r)
        children = [(code, self._build(group, table, left, order)) for code, group in sorted(groups.items())]
        other = self._build(rest, table, left, order) if rest else None
        return _Node(low, len(order), [], best, children, other)

    def _compile_moves(self) -> None:
        """Moves by (source word, target word, turn): arrays over rows, so that mixed pairs move in one go."""
        slots: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        for number, row in enumerate(self.rows):
            seen: dict[tuple[int, int], int] = {}
            for move in row.moves:
                turn = seen[move.source, move.target] = seen.get((move.source, move.target), -1) + 1
                slots.setdefault((move.source, move.target, turn), []).append((number, move.shift, move.mask))
        self._moves: list[tuple[int, int, Word, Word, Word]] = []
        for (source, target, _), entries in slots.items():
            left, right, mask = (np.zeros(len(self.rows), np.uint64) for _ in range(3))
            for number, shift, bits in entries:
                left[number] = max(shift, 0)
                right[number] = max(-shift, 0)
                mask[number] = bits
            self._moves.append((source, target, left, right, mask))

    def _finish(self, node: _Node) -> None:
        span = slice(node.low, node.high)
        node.tests = [w for w in range(self.total) if self._mask[w][span].any()]
        for _, child in node.children:
            self._finish(child)
        if node.rest is not None:
            self._finish(node.rest)

    def expand(self, words: list[Word]) -> Batch:
        """All transitions from the given states."""
        parts: list[tuple[Index, Index, list[Word]]] = []
        view = _View(self.circuit.extend(words), None)
        if self.rows and view.count:
            self._visit(self._root, view, parts)
        if not parts:
            nothing = np.zeros(0, np.intp)
            return Batch(nothing, nothing, [np.zeros(0, np.uint64) for _ in range(self.words)])
        return Batch(
            np.concatenate([p[0] for p in parts]),
            np.concatenate([p[1] for p in parts]),
            [np.concatenate([p[2][w] for p in parts]) for w in range(self.words)],
        )

    def _visit(self, node: _Node, view: _View, parts: list[tuple[Index, Index, list[Word]]]) -> None:
        if not view.count:
            return
        if view.count * (node.high - node.low) <= MATRIX:
            self._matrix(node, view, parts)
        elif node.field is None:
            if view.count >= LONG:
                self._by_row(node, view, parts)
            else:
                step = max(1, MATRIX // view.count)
                for low in range(node.low, node.high, step):
                    self._matrix(_Node(low, min(low + step, node.high), node.tests), view, parts)
        else:
            field = node.field
            code = view[field.at // WORD] & np.uint64(field.mask >> (field.at // WORD * WORD))
            for wanted, child in node.children:
                chosen = np.flatnonzero(code == np.uint64(wanted << field.at % WORD))
                if len(chosen):
                    self._visit(child, view.where(chosen), parts)
            if node.rest is not None:
                self._visit(node.rest, view, parts)

    def _matrix(self, node: _Node, view: _View, parts: list[tuple[Index, Index, list[Word]]]) -> None:
        span = slice(node.low, node.high)
        equal = None
        for word in node.tests:
            test = (view[word] & self._mask[word][span, None]) == self._value[word][span, None]
            equal = test if equal is None else np.logical_and(equal, test, out=equal)
        if equal is None:
            equal = np.ones((node.high - node.low, view.count), bool)
        hits = np.flatnonzero(equal)
        if not len(hits):
            return
        row = hits // view.count
        at = hits - row * view.count
        row += node.low
        source = at if view.index is None else view.index.take(at)
        result = []
        for word in range(self.words):
            old = view.words[word].take(source)
            old &= self._keep[word].take(row)
            old ^= self._put[word].take(row)
            result.append(old)
        for origin, target, left, right, mask in self._moves:
            if mask[span].any():
                bits = view.words[origin].take(source)
                bits >>= right.take(row)
                bits <<= left.take(row)
                bits &= mask.take(row)
                result[target] ^= bits
        parts.append((source, row, result))

    def _by_row(self, node: _Node, view: _View, parts: list[tuple[Index, Index, list[Word]]]) -> None:
        for number in range(node.low, node.high):
            row = self.rows[number]
            mask, value = row.guard
            equal = None
            for word in node.tests:
                m = mask >> (WORD * word) & ONES
                if m:
                    test = (view[word] & np.uint64(m)) == np.uint64(value >> (WORD * word) & ONES)
                    equal = test if equal is None else np.logical_and(equal, test, out=equal)
            at = np.arange(view.count) if equal is None else np.flatnonzero(equal)
            if not len(at):
                continue
            source = at if view.index is None else view.index.take(at)
            result = []
            for word in range(self.words):
                keep, put = row.keep >> (WORD * word) & ONES, row.put >> (WORD * word) & ONES
                old = view.words[word].take(source)
                if keep != ONES:
                    old &= np.uint64(keep)
                if put:
                    old ^= np.uint64(put)
                result.append(old)
            for move in row.moves:
                bits = view.words[move.source].take(source)
                if move.shift > 0:
                    bits <<= np.uint64(move.shift)
                elif move.shift < 0:
                    bits >>= np.uint64(-move.shift)
                bits &= np.uint64(move.mask)
                result[move.target] ^= bits
            parts.append((source, np.full(len(source), number, np.intp), result))
