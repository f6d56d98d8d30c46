"""Layout: where each cell lives in the packed words of a state.

A cell with k possible values has a field of ceil(log2 k) bits; a constant cell has none. Fields never straddle words; word 0
leaves its top bit free, so that a word of ones can mark an empty slot of the visited set. Cells of one individual stand
together, in the same order for each individual: exchanging two individuals is then a shift of few masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_lifecycle.spec.check.explicit.ground import Ground
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import UninterpretedSort

Word = npt.NDArray[np.uint64]
WORD = 64
ONES = (1 << WORD) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """`bits` bits from position `at` (word * 64 + offset); the i-th possible value has code i."""

    at: int
    bits: int
    ordinals: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return ((1 << self.bits) - 1) << self.at


class Layout:
    """Fields of all cells that are not constant, for given sets of possible values."""

    def __init__(self, machine: Machine, ground: Ground, sets: list[int]) -> None:
        self.ground = ground
        self.sets = sets
        self.fields: dict[int, Field] = {}
        at = 0
        for cell in _order(machine, ground):
            ordinals = tuple(i for i in range(len(ground.values[cell])) if sets[cell] >> i & 1)
            bits = (len(ordinals) - 1).bit_length()
            if not bits:
                continue
            word, end = divmod(at, WORD)
            if end + bits > (WORD - 1 if word == 0 else WORD):
                at = (word + 1) * WORD
            self.fields[cell] = Field(at, bits, ordinals)
            at += bits
        self.bits = sum(f.bits for f in self.fields.values())
        self.words = max((f.at // WORD for f in self.fields.values()), default=0) + 1

    def code(self, cell: int, ordinal: int) -> int:
        """The code of a value (by its ordinal in the cell's sort)."""
        return self.fields[cell].ordinals.index(ordinal)

    def encode(self, state: Mapping[ev.Cell, Any]) -> tuple[int, ...]:
        """The packed words of a concrete state."""
        packed = 0
        for cell, field in self.fields.items():
            ordinal = self.ground.values[cell].index(state[self.ground.cells[cell]])
            packed |= self.code(cell, ordinal) << field.at
        return split(packed, self.words)

    def decode(self, words: tuple[int, ...]) -> dict[ev.Cell, Any]:
        """The concrete state of packed words."""
        packed = sum(w << (WORD * i) for i, w in enumerate(words))
        state: dict[ev.Cell, Any] = {}
        for cell, name in enumerate(self.ground.cells):
            field = self.fields.get(cell)
            if field is None:
                ordinal = self.sets[cell].bit_length() - 1
            else:
                ordinal = field.ordinals[packed >> field.at & ((1 << field.bits) - 1)]
            state[name] = self.ground.values[cell][ordinal]
        return state


def split(packed: int, words: int) -> tuple[int, ...]:
    """A long bit pattern as 64-bit words, lowest first."""
    return tuple(packed >> (WORD * i) & ONES for i in range(words))


def _order(machine: Machine, ground: Ground) -> list[int]:
    """Cells by the individual of the most used sort, then by the other individuals, then by variable."""
    use: dict[str, int] = {}
    for var in machine.vars:
        for sort in var.args:
            if isinstance(sort, UninterpretedSort):
                use[sort.name] = use.get(sort.name, 0) + 1
    ranked = sorted(use, key=lambda name: -use[name])
    order = {var.name: i for i, var in enumerate(machine.vars)}

    def key(cell: int) -> tuple[Any, ...]:
        name, args = ground.cells[cell]
        var = machine.var(name)
        where: list[Any] = []
        for sort_name in ranked:
            places = [
                ground.domain.individuals[sort_name].index(a)
                for a, s in zip(args, var.args, strict=True)
                if isinstance(s, UninterpretedSort) and s.name == sort_name
            ]
            where.append(tuple(places) if places else (-1,))
        return (*where, order[name], cell)

    return sorted(range(ground.count), key=key)
