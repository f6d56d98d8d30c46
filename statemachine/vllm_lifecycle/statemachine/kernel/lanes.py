"""The lockstep decoders as parallel lists: what is asked of each of them in every step is a column, so that C code walks it.

Who joins or leaves changes the columns in place: copying them would touch an object of each member. `Lanes.seqs` alone is
another list then, so a step in flight that was built from it can be told from what there is now by identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress
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

    def hash(self, full: Iterable[Seq], size: int) -> None:
        """The last `size` tokens of each of these requests are a full block without key: extend its `hashes`, if it has any."""
        ...


class Lanes:
    """The members in the order in which they run.

    seqs, ids       who they are
    base            computed tokens of each, less the number of steps dispatched so far (`Columns.tick`)
    shown           output tokens of each with those in flight, counted in the same way
    tokens, outputs the lists that grow with each answer
    stops, special  see `Facts`
    constants       one list for each of the values of `Facts.constants`
    place, ones     where each id stands; a token for each id, to be copied
    any_stop        tokens that may end one of them, or might have ended one who has left
    """

    def __init__(self) -> None:
        self.seqs: list[Seq] = []
        self.ids: list[str] = []
        self.base: list[int] = []
        self.shown: list[int] = []
        self.tokens: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.stops: list[frozenset[int]] = []
        self.special: list[bool] = []
        self.constants: list[list[Any]] = []
        self.place: dict[str, int] = {}
        self.ones: dict[str, int] = {}
        self.any_stop: frozenset[int] = frozenset()

    def change(self, gone: Iterable[Seq], joining: Sequence[Seq], tick: int, facts: Facts) -> list[int]:
        """Those are no members any more, and these are, behind the others; `tick` steps of them are not to be counted.

        Gives the places of those who are gone, the last one first.
        """
        places = sorted([self.place[seq.id] for seq in gone], reverse=True)
        seqs = self.seqs = self.seqs.copy()
        for place in places:
            del self.place[self.ids[place]], self.ones[self.ids[place]]
        constants = list(zip(*map(facts.constants, joining), strict=True))
        self.constants = self.constants or [[] for _ in constants]
        columns: list[list[Any]] = [
            seqs, self.ids, self.base, self.shown, self.tokens, self.outputs, self.stops, self.special, *self.constants
        ]  # fmt: skip
        for column in columns:
            for place in places:
                del column[place]
        kept = len(seqs)
        seqs += joining
        self.ids += [seq.id for seq in joining]
        self.base += [seq.computed for seq in joining]
        self.shown += [len(seq.outputs) + seq.placeholders - tick for seq in joining]
        self.tokens += [seq.tokens for seq in joining]
        self.outputs += [seq.outputs for seq in joining]
        self.stops += map(facts.stops, joining)
        self.special += map(facts.special, joining)
        for column, values in zip(self.constants, constants, strict=False):
            column += values
        first = places[-1] if places else kept
        self.place.update(zip(self.ids[first:], range(first, len(seqs)), strict=True))
        self.ones.update(dict.fromkeys(self.ids[kept:], 1))
        if not self.any_stop.issuperset(chain(*self.stops[kept:])):
            self.any_stop = frozenset().union(*set(self.stops))
        for name in ("blank", "specials", "uniform"):
            self.__dict__.pop(name, None)
        return places

    def gather(self, places: Mapping[str, int], sampled: Sequence[list[int]]) -> Sequence[list[int]]:
        """The tokens of each of them in an answer that has them at these places; none for one that it lacks."""
        ids = self.ids
        n = len(ids)
        # once somebody has left the last one seldom is in his place: asked before all of them are
        kept = n > 0 and len(places) == len(sampled) == n and places.get(ids[-1]) == n - 1
        if kept and places == self.place:
            return sampled
        try:
            return list(map(sampled.__getitem__, map(places.__getitem__, ids)))
        except (KeyError, IndexError):
            found = map(places.get, ids)
            return [[] if at is None or at >= len(sampled) else sampled[at] for at in found]

    @cached_property
    def specials(self) -> list[int]:
        """Where those stand whose outputs are made by themselves."""
        return list(compress(range(len(self.seqs)), self.special))

    @cached_property
    def blank(self) -> list[bool]:
        """For each of the constants, whether it is None or 0 for all."""
        return [column.count(None) + column.count(0) == len(column) for column in self.constants]

    @cached_property
    def uniform(self) -> list[bool]:
        """For each of the constants, whether all have the same."""
        return [not column or column.count(column[0]) == len(column) for column in self.constants]
