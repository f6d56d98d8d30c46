"""Circuits: formulas as tests `word & mask == value` over state words and derived words.

Every conjunction of literals is one such test (a cube). What is not a cube gets a derived bit: a disjunction is the negation
of a cube over simpler bits, and a literal whose values form no sub-cube of codes is looked up by code. So any formula is a
cube over state bits and derived bits, at linear cost, and a derived bit is computed once per state, not once per action
instance. Rejected: disjoint covers of guards (exponential in the worst case, more rows to test).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from vllm_lifecycle.spec.check.explicit.formula import AND, FALSE, TRUE, Formulas
from vllm_lifecycle.spec.check.explicit.layout import ONES, WORD, Field, Word

Cube = tuple[int, int]
TILE = 1 << 15


class Circuit:
    """Derived bits over `base` words; `place(cell)` gives the field of a cell."""

    def __init__(self, formulas: Formulas, place: Callable[[int], Field], base: int) -> None:
        self.formulas = formulas
        self.place = place
        self.base = base
        self.words = base
        self._bits: dict[int, int] = {}
        self._cubes: dict[int, Cube] = {}
        self._level: list[int] = [0] * base
        self._taken: list[int] = [ONES] * base
        self._definitions: dict[int, Cube] = {}
        self._lookups: dict[int, dict[int, int]] = {}
        self._lookup_bits: dict[tuple[int, int], int] = {}
        self._program: list[tuple[int, _Tests]] | None = None

    # formulas to cubes

    def cube(self, node: int) -> Cube:
        """Mask and value over all words such that the formula is `bits & mask == value`; FALSE is refused."""
        found = self._cubes.get(node)
        if found is not None:
            return found
        if node == FALSE:
            raise ValueError("a formula that is never true has no cube")
        mask = value = 0
        if self.formulas.kind[node] is AND:
            for cell, allowed in self.formulas.literals[node]:
                m, v = self._literal(cell, allowed)
                mask |= m
                value |= v
            for part in self.formulas.parts[node]:
                position, positive = self.bit(part)
                mask |= 1 << position
                value |= positive << position
        else:
            position, positive = self.bit(node)
            mask, value = 1 << position, positive << position
        self._cubes[node] = (mask, value)
        return mask, value

    def bit(self, node: int) -> tuple[int, bool]:
        """A bit position that holds the formula, or (second value false) its negation."""
        if self.formulas.kind[node] is not AND:
            position, positive = self.bit(self.formulas.neg(node))
            return position, not positive
        found = self._bits.get(node)
        if found is not None:
            return found, True
        mask, value = self.cube(node)
        if mask.bit_count() == 1:
            return mask.bit_length() - 1, bool(value)
        return self._define([(node, 0)])[0], True

    def bits(self, wanted: Iterable[tuple[int, int]]) -> list[tuple[int, bool]]:
        """Bits of several (formula, target position): new ones are spaced like their targets where that is possible."""
        wanted = list(wanted)
        fresh: dict[int, list[tuple[int, int]]] = {}
        for node, target in wanted:
            inner = node if self.formulas.kind[node] is AND else self.formulas.neg(node)
            mask, _ = self.cube(inner)
            if inner not in self._bits and mask.bit_count() > 1:
                level = 1 + max(self._level[w] for w in _used(mask))
                group = fresh.setdefault(level, [])
                if all(inner != other for other, _ in group):
                    group.append((inner, target))
        for group in fresh.values():
            self._define(group)
        return [self.bit(node) for node, _ in wanted]

    def size(self, node: int) -> int:
        """How many derived bits the formula would need beyond those that exist."""
        if node <= TRUE:
            return 0
        inner = node if self.formulas.kind[node] is AND else self.formulas.neg(node)
        if inner in self._bits:
            return 0
        parts = self.formulas.parts[inner]
        return (len(self.formulas.literals[inner]) + len(parts) > 1) + sum(self.size(p) for p in parts)

    def _literal(self, cell: int, allowed: int) -> Cube:
        field = self.place(cell)
        codes = [c for c, o in enumerate(field.ordinals) if allowed >> o & 1]
        agree = (1 << field.bits) - 1
        for code in codes:
            agree &= ~(code ^ codes[0])
        inside = [c for c in range(len(field.ordinals)) if (c ^ codes[0]) & agree == 0]
        if len(inside) == len(codes):
            return agree << field.at, (codes[0] & agree) << field.at
        position = self._lookup_bits.get((cell, allowed))
        if position is None:
            position = self._lookup_bits[cell, allowed] = self._allocate(1, [0])[0]
            self._lookups.setdefault(cell, {})[position] = sum(1 << c for c in codes)
            self._program = None
        return 1 << position, 1 << position

    def _define(self, group: list[tuple[int, int]]) -> list[int]:
        cubes = [self.cube(node) for node, _ in group]
        level = 1 + max(self._level[w] for mask, _ in cubes for w in _used(mask))
        positions = self._allocate(level, [target for _, target in group])
        for (node, _), cube, position in zip(group, cubes, positions, strict=True):
            self._bits[node] = position
            self._definitions[position] = cube
        self._program = None
        return positions

    def _allocate(self, level: int, targets: list[int]) -> list[int]:
        low = min(targets)
        shape = sum(1 << (t - low) for t in targets) if max(targets) - low < WORD else 0
        if not shape or shape.bit_count() < len(targets):
            return [self._allocate(level, [t])[0] for t in targets]
        for word in range(self.base, self.words):
            if self._level[word] == level:
                for offset in range(WORD - shape.bit_length() + 1):
                    if not self._taken[word] & shape << offset:
                        self._taken[word] |= shape << offset
                        return [word * WORD + offset + t - low for t in targets]
        self._level.append(level)
        self._taken.append(shape)
        self.words += 1
        return [(self.words - 1) * WORD + t - low for t in targets]

    # evaluation

    def extend(self, words: list[Word]) -> list[Word]:
        """All words: the given base words and the derived ones."""
        if self._program is None:
            self._compile()
        assert self._program is not None
        result = [*words, *(words[0] for _ in range(self.base, self.words))]
        derived: dict[int, Word] = {}
        for word, table in self._tables:
            at, bits, codes = table
            code = words[at // WORD] >> np.uint64(at % WORD) & np.uint64((1 << bits) - 1)
            part = codes.take(code.view(np.int64))
            derived[word] = derived[word] | part if word in derived else part
        for word, part in derived.items():
            result[word] = part
        for word, tests in self._program:
            computed = tests.packed(result)
            result[word] = computed | derived[word] if word in derived else computed
        return result

    def _compile(self) -> None:
        self._tables: list[tuple[int, tuple[int, int, Word]]] = []
        for cell, positions in self._lookups.items():
            field = self.place(cell)
            per_word: dict[int, Word] = {}
            for position, codes in positions.items():
                table = per_word.setdefault(position // WORD, np.zeros(1 << field.bits, np.uint64))
                for code in range(1 << field.bits):
                    if codes >> code & 1:
                        table[code] |= np.uint64(1 << position % WORD)
            self._tables += [(word, (field.at, field.bits, table)) for word, table in per_word.items()]
        by_word: dict[int, dict[int, Cube]] = {}
        for position, cube in self._definitions.items():
            by_word.setdefault(position // WORD, {})[position % WORD] = cube
        order = sorted(by_word, key=lambda w: self._level[w])
        self._program = [(word, _Tests(by_word[word], self.words)) for word in order]


def _used(mask: int) -> list[int]:
    """Words in which a long mask has bits."""
    words = []
    word = 0
    while mask:
        if mask & ONES:
            words.append(word)
        mask >>= WORD
        word += 1
    return words or [0]


class _Tests:
    """Up to 64 cubes whose results are the bits of one word."""

    def __init__(self, cubes: dict[int, Cube], words: int) -> None:
        self.width = (max(cubes) // 8 + 1) * 8
        self.parts: list[tuple[int, Word, Word]] = []
        for word in range(words):
            masks = np.zeros(self.width, np.uint64)
            values = np.zeros(self.width, np.uint64)
            for column, (mask, value) in cubes.items():
                masks[column] = mask >> (WORD * word) & ONES
                values[column] = value >> (WORD * word) & ONES
            if masks.any():
                self.parts.append((word, masks, values))
        unused = np.ones(self.width, bool)
        unused[list(cubes)] = False
        # An unused column must come out 0: no masked word equals a value outside its mask.
        self.parts[0][2][unused] = np.uint64(1)

    def packed(self, words: list[Word]) -> Word:
        """The results for each state, one bit per cube."""
        count = len(words[0])
        result = np.zeros((count, 8), np.uint8)
        tile = max(1, TILE // self.width)
        for low in range(0, count, tile):
            part = slice(low, low + tile)
            equal = None
            for word, masks, values in self.parts:
                test = (words[word][part, None] & masks) == values
                equal = test if equal is None else np.logical_and(equal, test, out=equal)
            assert equal is not None
            result[part, : self.width // 8] = np.packbits(equal, axis=1, bitorder="little")
        return result.view(np.uint64).reshape(count)
