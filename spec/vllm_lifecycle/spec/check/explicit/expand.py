"""Expansion: all enabled rows of many states at once.

The guards' planes of a chunk give the pairs (row, state) in order of rows. Pairs of a row that many states enable are computed
with the row's masks as scalars; between such runs the masks are gathered per pair, which is also the path for tiny
frontiers, where every row has few pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_lifecycle.spec.check.explicit.layout import ONES, WORD, Layout, Word
from vllm_lifecycle.spec.check.explicit.planes import Index, Network, Outputs, members, valid
from vllm_lifecycle.spec.check.explicit.rows import Row

LONG = 256
"""Pairs of one row from which on they are computed with scalar masks."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Transitions in order of rows: for each the index of its source state, its row, and the words of its successor.

    `counts` is the number of transitions per row. `fault` is some error row with a state that enables it, or None; error
    rows make no transitions.
    """

    source: Index
    row: Index
    words: list[Word]
    counts: Index
    fault: tuple[Row, int] | None = None


class Expander:
    """Successors of packed states; `rows` is in the order of row numbers in batches."""

    def __init__(self, rows: Sequence[Row], layout: Layout, network: Network, outputs: Outputs) -> None:
        self.rows = [r for r in rows if r.fault is None]
        self._faults = [r for r in rows if r.fault is not None]
        self.words = layout.words
        self._network = network
        self._outputs = outputs
        outputs.compile()
        self._guards = np.array([r.guard for r in self.rows], np.intp)
        self._fault_guards = np.array([r.guard for r in self._faults], np.intp)
        self._keep = self._columns([r.keep for r in self.rows])
        self._put = self._columns([r.put for r in self.rows])
        self._compile_moves()

    def _columns(self, values: list[int]) -> list[Word]:
        return [np.array([v >> (WORD * w) & ONES for v in values], np.uint64) for w in range(self.words)]

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

    @property
    def nbytes(self) -> int:
        """Bytes held by planes."""
        return self._network.nbytes

    def expand(self, words: list[Word]) -> Batch:
        """All transitions from the given states."""
        count = len(words[0])
        if not count:
            nothing = np.zeros(0, np.intp)
            words = [np.zeros(0, np.uint64) for _ in range(self.words)]
            return Batch(nothing, nothing, words, np.zeros(len(self.rows), np.intp))
        planes = self._network.evaluate(words)
        real = valid(count)
        row, source = members(planes.take(self._guards, axis=0) & real, count)
        every = [*words, *self._outputs.words(planes, count)]
        result = [w.take(source) for w in words]
        counts = np.bincount(row, minlength=len(self.rows))
        self._update(every, row, source, counts, result)
        fault: tuple[Row, int] | None = None
        if self._faults:
            wrong, at = members(planes.take(self._fault_guards, axis=0) & real, count)
            if len(wrong):
                fault = self._faults[int(wrong[0])], int(at[0])
        return Batch(source, row, result, counts, fault)

    def _update(
        self, words: list[Word], row: Index, source: Index, counts: Index, result: list[Word]
    ) -> None:
        ends = np.cumsum(counts)
        done = 0
        for number in np.flatnonzero(counts >= LONG).tolist():
            high = int(ends[number])
            low = high - int(counts[number])
            self._mixed(words, row[done:low], source[done:low], [w[done:low] for w in result])
            self._long(words, self.rows[number], source[low:high], [w[low:high] for w in result])
            done = high
        self._mixed(words, row[done:], source[done:], [w[done:] for w in result])

    def _long(self, words: list[Word], row: Row, source: Index, result: list[Word]) -> None:
        for word in range(self.words):
            keep, put = row.keep >> (WORD * word) & ONES, row.put >> (WORD * word) & ONES
            if keep != ONES:
                result[word] &= np.uint64(keep)
            if put:
                result[word] ^= np.uint64(put)
        for move in row.moves:
            bits = words[move.source].take(source)
            if move.shift > 0:
                bits <<= np.uint64(move.shift)
            elif move.shift < 0:
                bits >>= np.uint64(-move.shift)
            bits &= np.uint64(move.mask)
            result[move.target] ^= bits

    def _mixed(self, words: list[Word], row: Index, source: Index, result: list[Word]) -> None:
        if not len(row):
            return
        for word in range(self.words):
            result[word] &= self._keep[word].take(row)
            result[word] ^= self._put[word].take(row)
        for origin, target, left, right, mask in self._moves:
            bits = mask.take(row)
            at = np.flatnonzero(bits)
            if len(at):
                which = row.take(at)
                moved = words[origin].take(source.take(at))
                moved >>= right.take(which)
                moved <<= left.take(which)
                moved &= bits.take(at)
                result[target][at] ^= moved
