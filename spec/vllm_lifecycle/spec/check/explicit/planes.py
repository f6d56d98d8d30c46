"""Bit planes: formulas evaluated for 64 states per machine word.

The packed words of a chunk are transposed, so that plane j holds bit j of every state; a gate (and, or) is then one operation
over a plane. Formulas are in negation normal form, so gates need no inverter: each field bit has a plane and a complement.
Equal subformulas are one gate. State s of a chunk of 64 * G states is bit s // G of word s % G: with this order the
transposition works on whole rows. Rejected: testing `word & mask == value` per formula and state (some 80 times the work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from vllm_lifecycle.spec.check.explicit.formula import AND, FALSE, TRUE, Formulas
from vllm_lifecycle.spec.check.explicit.layout import ONES, WORD, Field, Word

Index = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
_Step = tuple[np.ufunc, Word, Word, Word]
WIDE = 64
"""From this many words per plane on, gates are evaluated one by one instead of level by level."""
ZERO_PLANE, ONE_PLANE = 0, 1
_STAGES = tuple(
    (j, np.uint64(sum(((1 << j) - 1) << k for k in range(0, WORD, 2 * j)))) for j in (32, 16, 8, 4, 2, 1)
)


def transpose(block: Word) -> None:
    """Exchange rows and bits of a (64, G) block, in place."""
    groups = block.shape[1]
    for j, mask in _STAGES:
        pairs = block.reshape(WORD // (2 * j), 2, j * groups)
        low, high = pairs[:, 0], pairs[:, 1]
        t = low >> np.uint64(j)
        t ^= high
        t &= mask
        high ^= t
        t <<= np.uint64(j)
        low ^= t


def groups_for(count: int) -> int:
    """Words per plane for a chunk of that many states; wide planes come in few widths, as each has a program of its own."""
    groups = (count + WORD - 1) // WORD
    return groups if groups < WIDE else 1 << (groups - 1).bit_length()


def valid(count: int) -> Word:
    """The plane that is true for the first `count` states of a chunk."""
    groups = groups_for(count)
    full, rest = divmod(count, groups)
    plane = np.full(groups, (1 << full) - 1, np.uint64)
    plane[:rest] |= np.uint64(1 << full) if full < WORD else np.uint64(0)
    return plane


def members(planes: Word, count: int) -> tuple[Index, Index]:
    """(row, state) for each true bit of a matrix of planes, ordered by row; bits beyond `count` must be false."""
    groups = planes.shape[1]
    flat = planes.reshape(-1)
    filled = np.flatnonzero(flat)
    bits = np.unpackbits(flat.take(filled).view(np.uint8), bitorder="little")
    places = np.flatnonzero(bits.view(bool))
    at = filled.take(places >> 6)
    row = at // groups if groups > 1 else at.copy()
    places &= 63
    places *= groups
    places += at
    places -= row * groups
    return row, places


class Network:
    """Gates over the bits of `words` words; `place(cell)` gives the field of a cell."""

    def __init__(self, formulas: Formulas, place: Callable[[int], Field], words: int) -> None:
        self.formulas = formulas
        self.place = place
        self.words = words
        self._gates: list[tuple[bool, int, int]] = []
        self._levels: list[int] = []
        self._gate_of: dict[tuple[bool, int, int], int] = {}
        self._plane_of: dict[int, int] = {FALSE: ZERO_PLANE, TRUE: ONE_PLANE}
        self._literal_of: dict[tuple[int, int], int] = {}
        self._inputs = 2 + 2 * WORD * words
        self._order: list[list[tuple[bool, Index, Index, Index]]] | None = None
        self.planes: Word = np.zeros((0, 0), np.uint64)
        self._program: list[_Step] = []
        self._programs: dict[int, tuple[Word, list[_Step]]] = {}

    # building

    def plane(self, node: int) -> int:
        """The number of the plane that holds a formula."""
        found = self._plane_of.get(node)
        if found is None:
            kind = self.formulas.kind[node]
            planes = [self._literal(c, m) for c, m in self.formulas.literals[node]]
            planes += [self.plane(p) for p in self.formulas.parts[node]]
            found = self._plane_of[node] = self._chain(kind, planes)
        return found

    def input(self, position: int, positive: bool) -> int:
        """The plane of one state bit, or of its complement."""
        word, bit = divmod(position, WORD)
        return 2 + 2 * WORD * word + (bit if positive else WORD + bit)

    def _chain(self, kind: bool, planes: Iterable[int]) -> int:
        result: int | None = None
        for plane in planes:
            result = plane if result is None else self._gate(kind, result, plane)
        assert result is not None
        return result

    def _gate(self, kind: bool, left: int, right: int) -> int:
        if left == right:
            return left
        unit, zero = (ONE_PLANE, ZERO_PLANE) if kind is AND else (ZERO_PLANE, ONE_PLANE)
        if zero in (left, right):
            return zero
        if unit in (left, right):
            return right if left == unit else left
        key = (kind, min(left, right), max(left, right))
        found = self._gate_of.get(key)
        if found is None:
            found = self._gate_of[key] = self._inputs + len(self._gates)
            self._gates.append(key)
            level = (
                max((self._levels[p - self._inputs] for p in key[1:] if p >= self._inputs), default=-1) + 1
            )
            self._levels.append(level)
            self._order = None
            self._programs = {}
        return found

    def _literal(self, cell: int, allowed: int) -> int:
        found = self._literal_of.get((cell, allowed))
        if found is None:
            field = self.place(cell)
            wanted = [bool(allowed >> o & 1) for o in field.ordinals]
            found = self._literal_of[cell, allowed] = self._codes(field, wanted, field.bits, 0)
        return found

    def _codes(self, field: Field, wanted: list[bool], width: int, base: int) -> int:
        """Codes base .. base + 2 ** width - 1 of a field that are wanted; codes that no value has do not matter."""
        here = set(wanted[base : base + (1 << width)])
        if len(here) < 2:
            return ONE_PLANE if here == {True} else ZERO_PLANE
        bit = width - 1
        low = self._codes(field, wanted, bit, base)
        if base + (1 << bit) >= len(wanted):
            return low
        high = self._codes(field, wanted, bit, base + (1 << bit))
        if low == high:
            return low
        on, off = self.input(field.at + bit, True), self.input(field.at + bit, False)
        return self._gate(not AND, self._gate(AND, on, high), self._gate(AND, off, low))

    # evaluating

    def evaluate(self, words: list[Word]) -> Word:
        """All planes for a chunk of states; the array is reused by the next call."""
        count = len(words[0])
        groups = groups_for(count)
        planes = self._prepare(groups)
        for i, word in enumerate(words):
            low = 2 + 2 * WORD * i
            block = planes[low : low + WORD]
            flat = block.reshape(-1)
            flat[:count] = word
            flat[count:] = 0
            transpose(block)
            np.bitwise_not(block, out=planes[low + WORD : low + 2 * WORD])
        if groups >= WIDE:
            for operation, left, right, out in self._program:
                operation(left, right, out)
        else:
            assert self._order is not None
            for level in self._order:
                for kind, lefts, rights, outs in level:
                    both = planes.take(lefts, axis=0)
                    other = planes.take(rights, axis=0)
                    planes[outs] = (
                        np.bitwise_and(both, other, both) if kind is AND else np.bitwise_or(both, other, both)
                    )
        return planes

    def _prepare(self, groups: int) -> Word:
        total = self._inputs + len(self._gates)
        if self._order is None:
            self._order = []
            by_level: dict[tuple[int, bool], list[int]] = {}
            for i, (kind, _, _) in enumerate(self._gates):
                by_level.setdefault((self._levels[i], kind), []).append(i)
            for level in range(max(self._levels, default=-1) + 1):
                entries = []
                for kind in (AND, not AND):
                    gates = by_level.get((level, kind), [])
                    if gates:
                        lefts = np.array([self._gates[g][1] for g in gates], np.intp)
                        rights = np.array([self._gates[g][2] for g in gates], np.intp)
                        entries.append((kind, lefts, rights, np.array(gates, np.intp) + self._inputs))
                self._order.append(entries)
        if self.planes.shape == (total, groups):
            return self.planes
        if groups in self._programs:
            self.planes, self._program = self._programs[groups]
            return self.planes
        self.planes = np.zeros((total, groups), np.uint64)
        self.planes[ONE_PLANE] = np.uint64(ONES)
        self._program = []
        if groups >= WIDE:
            rows = list(self.planes)
            for gate, (kind, left, right) in enumerate(self._gates):
                operation = np.bitwise_and if kind is AND else np.bitwise_or
                self._program.append((operation, rows[left], rows[right], rows[self._inputs + gate]))
            self._programs[groups] = self.planes, self._program
        return self.planes

    @property
    def nbytes(self) -> int:
        """Bytes held by planes, for all widths in use."""
        return sum(planes.nbytes for planes, _ in self._programs.values())


class Outputs:
    """Derived words: formulas of a network gathered as bits of extra words, next to each state's own words."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.first = network.words
        self._at: dict[int, int] = {}
        self._taken: list[int] = []

    @property
    def count(self) -> int:
        """How many derived words there are."""
        return len(self._taken)

    def places(self, wanted: list[tuple[int, int]]) -> list[int]:
        """Positions of several (plane, target position): new ones are spaced like their targets where possible."""
        fresh: dict[int, int] = {}
        for plane, target in wanted:
            if plane not in self._at and self.input_position(plane) is None:
                fresh.setdefault(plane, target)
        if fresh:
            for plane, place in zip(fresh, self._allocate(list(fresh.values())), strict=True):
                self._at[plane] = place
        return [self._at[p] if p in self._at else self._input(p) for p, _ in wanted]

    def input_position(self, plane: int) -> int | None:
        """The state bit that a plane is, when it is one (not complemented)."""
        word, bit = divmod(plane - 2, 2 * WORD)
        return word * WORD + bit if 0 <= word < self.first and bit < WORD else None

    def _input(self, plane: int) -> int:
        position = self.input_position(plane)
        assert position is not None
        return position

    def _allocate(self, targets: list[int]) -> list[int]:
        low = min(targets)
        shape = sum(1 << (t - low) for t in set(targets)) if max(targets) - low < WORD else 0
        if shape.bit_count() < len(targets):
            return [self._allocate([t])[0] for t in targets]
        for word in range(len(self._taken) + 1):
            if word == len(self._taken):
                self._taken.append(0)
            for offset in range(WORD - shape.bit_length() + 1):
                if not self._taken[word] & shape << offset:
                    self._taken[word] |= shape << offset
                    return [(self.first + word) * WORD + offset + t - low for t in targets]
        raise AssertionError("an empty word has room")

    def compile(self) -> None:
        """Fix the order of the gathered planes; to be called when all places are given."""
        self._gather = []
        for word in range(len(self._taken)):
            planes = np.zeros(WORD, np.intp)
            for plane, place in self._at.items():
                if place // WORD == self.first + word:
                    planes[place % WORD] = plane
            self._gather.append(planes)

    def words(self, planes: Word, count: int) -> list[Word]:
        """The derived words of a chunk whose planes were evaluated."""
        result = []
        for gather in self._gather:
            block = planes.take(gather, axis=0)
            transpose(block)
            result.append(block.reshape(-1)[:count])
        return result
