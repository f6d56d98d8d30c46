"""Symmetry: one representative per orbit of states under renaming the individuals of uninterpreted sorts.

Exact, because individuals can only be compared and all start alike: renaming them maps runs to runs. The representative is
the smallest packed state over all permutations; a walk through adjacent exchanges visits each permutation once, and an
exchange is a few masked shifts of the packed words. Safety, witnesses and deadlock carry over; liveness does not (fairness
speaks of individuals), so `liveness` refuses reduced graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import factorial, prod

import numpy as np

from vllm_lifecycle.spec.check.explicit.layout import ONES, WORD, Layout, Word
from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.lang.sorts import DefinitionError, UninterpretedSort

TILE = 1 << 14
LARGEST_GROUP = 5040


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Swaps two neighbouring individuals: bits that stay, and (source word, target word, shift, mask at the target)."""

    stay: tuple[int, ...]
    moves: tuple[tuple[int, int, int, int], ...]

    def apply(self, words: list[Word]) -> list[Word]:
        result = [w & np.uint64(s) for w, s in zip(words, self.stay, strict=True)]
        for source, target, shift, mask in self.moves:
            bits = words[source] << np.uint64(shift) if shift >= 0 else words[source] >> np.uint64(-shift)
            bits &= np.uint64(mask)
            result[target] |= bits
        return result


class Symmetry:
    """Canonical representatives under permutations of the named sorts; DefinitionError for unknown or too large ones."""

    def __init__(self, model: Model, sorts: Sequence[str]) -> None:
        domain = model.domain
        for name in sorts:
            if name not in domain.individuals:
                known = ", ".join(domain.individuals)
                raise DefinitionError(f"no uninterpreted sort {name} in this scope: choose from {known}")
        self.sorts = tuple(dict.fromkeys(sorts))
        sizes = [len(domain.individuals[name]) for name in self.sorts]
        self.order = prod(factorial(n) for n in sizes)
        if self.order > LARGEST_GROUP:
            raise DefinitionError(
                f"{self.order} renamings per state are too many: leave out {self.sorts[-1]} or choose a smaller scope"
            )
        exchanges = {
            (name, i): _exchange(model.layout, model, name, i)
            for name, n in zip(self.sorts, sizes, strict=True)
            for i in range(n - 1)
        }
        self._walk = [exchanges[step] for step in _walk(list(zip(self.sorts, sizes, strict=True)))]

    def canonical(self, words: list[Word]) -> list[Word]:
        """The representative of each state."""
        count = len(words[0])
        if count <= TILE:
            return self._canonical(words)
        tiles = [self._canonical([w[low : low + TILE] for w in words]) for low in range(0, count, TILE)]
        return [np.concatenate([tile[i] for tile in tiles]) for i in range(len(words))]

    def _canonical(self, words: list[Word]) -> list[Word]:
        best = [w.copy() for w in words]
        here = words
        for exchange in self._walk:
            here = exchange.apply(here)
            if len(best) == 1:
                np.minimum(best[0], here[0], out=best[0])
            else:
                less = here[-1] < best[-1]
                for mine, other in zip(here[-2::-1], best[-2::-1], strict=True):
                    less = (mine < other) | ((mine == other) & less)
                for mine, other in zip(here, best, strict=True):
                    np.copyto(other, mine, where=less)
        return best

    def orbit_total(self, words: list[Word]) -> int:
        """The number of states in the orbits of the given representatives."""
        fixed = np.ones(len(words[0]), np.int64)
        here = words
        for exchange in self._walk:
            here = exchange.apply(here)
            same = here[0] == words[0]
            for mine, other in zip(here[1:], words[1:], strict=True):
                same &= mine == other
            fixed += same
        return int((self.order // fixed).sum())


def _exchange(layout: Layout, model: Model, sort: str, index: int) -> _Exchange:
    ground = model.ground
    individuals = model.domain.individuals[sort]
    swap = {individuals[index]: individuals[index + 1], individuals[index + 1]: individuals[index]}
    stay = 0
    moves: dict[tuple[int, int, int], int] = {}
    for cell, field in layout.fields.items():
        name, args = ground.cells[cell]
        sorts = model.machine.var(name).args
        image = tuple(
            swap.get(a, a) if isinstance(s, UninterpretedSort) and s.name == sort else a
            for a, s in zip(args, sorts, strict=True)
        )
        if image == args:
            stay |= field.mask
            continue
        target = layout.fields[ground.number[name, image]]
        key = (field.at // WORD, target.at // WORD, target.at % WORD - field.at % WORD)
        moves[key] = moves.get(key, 0) | target.mask >> (target.at // WORD * WORD)
    words = tuple(stay >> (WORD * w) & ONES for w in range(layout.words))
    return _Exchange(words, tuple((*key, mask) for key, mask in sorted(moves.items())))


def _walk(sorts: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Adjacent exchanges that lead through all permutations but the first one."""
    if not sorts:
        return
    (name, size), others = sorts[0], sorts[1:]
    yield from _walk(others)
    for i in _plain_changes(size):
        yield name, i
        yield from _walk(others)


def _plain_changes(size: int) -> list[int]:
    """Positions of the adjacent exchanges of the Steinhaus-Johnson-Trotter order: size! - 1 of them."""
    if size < 2:
        return []
    inner = _plain_changes(size - 1)
    down, up = list(range(size - 2, -1, -1)), list(range(size - 1))
    result = list(down)
    for number, position in enumerate(inner):
        # The largest element stands at the left end after a way down: inner positions shift by one.
        at_left = number % 2 == 0
        result.append(position + 1 if at_left else position)
        result += up if at_left else down
    return result
