"""The lockstep decoders as parallel lists: what is asked of each of them in every step is a column, so that C code walks it.

A `Lanes` is never changed: who joins or leaves makes another one, so a step in flight that was built from one can be told from
what there is now by identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, islice, repeat
from typing import Any, Protocol

from vllm_lifecycle.statemachine.kernel.seq import Seq


class Facts(Protocol):
    """What the columns ask of the engine's request objects, which the kernel does not look into."""

    def fits(self, seq: Seq) -> bool:
        """Nothing about this request is unusual: each step brings one token, and the client gets it and the constants only."""
        ...

    def stops(self, seq: Seq) -> frozenset[int]:
        """Tokens that may end the request. Equal requests should give the same object."""
        ...

    def special(self, seq: Seq) -> bool:
        """Its output is made by itself (grammar, log probabilities, ...), though its tokens are counted with the others."""
        ...

    def constants(self, seq: Seq) -> tuple[Any, ...]:
        """Values that each of its outputs has, the same number of them for all requests."""
        ...

    def hash(self, full: list[tuple[Seq, list[int]]]) -> None:
        """Each of these requests has a full block without key, with these tokens: extend its `hashes`, if it has any."""
        ...


def _changed(column: list[Any], places: Iterable[int], more: Iterable[Any]) -> list[Any]:
    """A copy without what stands at these places, which descend, and with more behind."""
    changed = column.copy()
    for place in places:
        del changed[place]
    changed += more
    return changed


class Lanes:
    """The members in the order in which they run.

    seqs, ids       who they are
    base            computed tokens of each, less the number of steps dispatched so far (`Columns.tick`)
    shown           output tokens of each with those in flight, counted in the same way
    tokens, outputs the lists that grow with each answer
    stops, special  see `Facts`
    constants       one list for each of the values of `Facts.constants`
    """

    def __init__(self, columns: Sequence[list[Any]], constants: Sequence[list[Any]]) -> None:
        self._columns = columns
        self.constants = constants
        seqs, ids, base, shown, tokens, outputs, stops, special = columns
        self.seqs: list[Seq] = seqs
        self.ids: list[str] = ids
        self.base: list[int] = base
        self.shown: list[int] = shown
        self.tokens: list[list[int]] = tokens
        self.outputs: list[list[int]] = outputs
        self.stops: list[frozenset[int]] = stops
        self.special: list[bool] = special

    @classmethod
    def empty(cls) -> Lanes:
        """Nobody."""
        return cls([[] for _ in range(8)], ())

    def places_of(self, seqs: Iterable[Seq]) -> list[int]:
        """Where these stand, the last one first."""
        return sorted(map(self.place.__getitem__, seqs), reverse=True)

    def changed(self, places: Sequence[int], seqs: Sequence[Seq], tick: int, facts: Facts) -> Lanes:
        """Without those at these places, which descend, and with these behind, of whom `tick` steps are not to be counted."""
        more: tuple[Iterable[Any], ...] = (
            seqs,
            [seq.id for seq in seqs],
            [seq.computed for seq in seqs],
            [len(seq.outputs) + seq.placeholders - tick for seq in seqs],
            [seq.tokens for seq in seqs],
            [seq.outputs for seq in seqs],
            map(facts.stops, seqs),
            map(facts.special, seqs),
        )
        constants = list(zip(*map(facts.constants, seqs), strict=True))
        known = self.constants or [[] for _ in constants]
        made = Lanes(
            [_changed(column, places, new) for column, new in zip(self._columns, more, strict=True)],
            [
                _changed(column, places, new)
                for column, new in zip(known, constants or repeat(()), strict=False)
            ],
        )
        ones = made.ones = self.ones.copy()
        for place in places:
            del ones[self.ids[place]]
        ones.update(dict.fromkeys(made.ids[len(ones) :], 1))
        if self.any_stop.issuperset(chain(*made.stops[len(self.ids) - len(places) :])):
            made.any_stop = self.any_stop
        return made

    def gather(self, places: Mapping[str, int], sampled: Sequence[list[int]]) -> Sequence[list[int]]:
        """The tokens of each of them in an answer that has them at these places; none for one that it lacks."""
        ids = self.ids
        n = len(ids)
        ordered = list(islice(places, n)) == ids and list(islice(places.values(), n)) == self.order
        if ordered and len(sampled) >= n:
            return sampled[:n]
        try:
            return list(map(sampled.__getitem__, map(places.__getitem__, ids)))
        except (KeyError, IndexError):
            found = map(places.get, ids)
            return [[] if at is None or at >= len(sampled) else sampled[at] for at in found]

    @cached_property
    def place(self) -> dict[Seq, int]:
        """Where each of them stands."""
        return dict(zip(self.seqs, range(len(self.seqs)), strict=True))

    @cached_property
    def ones(self) -> dict[str, int]:
        """A token for each of them; to be copied."""
        return dict.fromkeys(self.ids, 1)

    @cached_property
    def order(self) -> list[int]:
        """Their places."""
        return list(range(len(self.ids)))

    @cached_property
    def specials(self) -> list[int]:
        """Where those stand whose outputs are made by themselves."""
        return list(compress(range(len(self.seqs)), self.special))

    @cached_property
    def any_stop(self) -> frozenset[int]:
        """Tokens that may end one of them, or ended one that has left."""
        return frozenset().union(*set(self.stops))

    @cached_property
    def uniform(self) -> list[bool]:
        """For each of the constants, whether all have the same."""
        return [not column or column.count(column[0]) == len(column) for column in self.constants]
