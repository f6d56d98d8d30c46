"""The visited set: open addressing over whole states, so membership is exact.

Slots hold the state's words themselves; a word of ones marks an empty slot (word 0 never is all ones). Colliding keys go to
the next slot. Within one batch a key may come many times: all of them write their batch number to the slot, one of the
numbers stays, and that one is new. Rejected: `np.unique` before insertion (it costs more than the probing it saves).
"""

from __future__ import annotations

import numpy as np

from vllm_lifecycle.spec.check.explicit.layout import ONES, Word
from vllm_lifecycle.spec.check.explicit.planes import Flags, Index

EMPTY = np.uint64(ONES)
FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
FULL = 0.5


def slots_of(keys: list[Word], bits: int) -> Index:
    """The home slot of each key in a table of 2 ** bits slots."""
    mixed = keys[0] * np.uint64(FACTORS[0])
    for i, key in enumerate(keys[1:], 1):
        mixed ^= mixed >> np.uint64(29)
        mixed += key
        mixed *= np.uint64(FACTORS[i % len(FACTORS)] | 1)
    if len(keys) > 1:
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(FACTORS[2])
    mixed >>= np.uint64(64 - bits)
    slots: Index = mixed.view(np.int64).astype(np.intp, copy=False)
    return slots


class Recent:
    """Keys seen lately, one per slot: a key found here was seen before, one that is not may have been too."""

    def __init__(self, words: int, bits: int) -> None:
        self._bits = bits
        self._slots = [np.full(1 << bits, EMPTY, np.uint64) for _ in range(words)]
        self._owner = np.zeros(1 << bits, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes held by the slots."""
        return self._owner.nbytes + sum(s.nbytes for s in self._slots)

    def unseen(self, keys: list[Word]) -> Index:
        """Which keys are not among those seen lately (of equal ones the one that is kept); all are seen from now on."""
        slot = slots_of(keys, self._bits)
        at = np.flatnonzero(_unlike(self._slots, slot, keys))
        place = slot.take(at)
        self._owner[place] = at
        kept = self._owner.take(place)
        mine, other = [k.take(at) for k in keys], [k.take(kept) for k in keys]
        stay = kept == at
        for stored, one, two in zip(self._slots, mine, other, strict=True):
            stay |= one != two
            stored[place] = two
        fresh: Index = at[stay]
        return fresh


def _unlike(slots: list[Word], at: Index, keys: list[Word]) -> Flags:
    """Where the key stored in a slot is another one than the key given."""
    result: Flags = slots[0].take(at) != keys[0]
    for stored, key in zip(slots[1:], keys[1:], strict=True):
        result |= stored.take(at) != key
    return result


class Table:
    """A growing set of states of `words` words each."""

    def __init__(self, words: int, bits: int = 12) -> None:
        self.words = words
        self.count = 0
        self._resize(bits)

    @property
    def nbytes(self) -> int:
        """Bytes held by the slots."""
        return self._owner.nbytes + sum(s.nbytes for s in self._slots)

    def _resize(self, bits: int) -> None:
        self._bits = bits
        self._slots = [np.full(1 << bits, EMPTY, np.uint64) for _ in range(self.words)]
        self._owner = np.zeros(1 << bits, np.int32)

    def bytes_after(self, more: int) -> int:
        """Bytes needed at the moment of growing to hold `more` further states (old and new slots)."""
        bits = self._bits
        while self.count + more > FULL * (1 << bits):
            bits += 1
        wanted = (8 * self.words + 4) << bits
        return wanted if bits == self._bits else wanted + self.nbytes

    def _hash(self, keys: list[Word]) -> Index:
        return slots_of(keys, self._bits)

    def add(self, keys: list[Word]) -> Index:
        """Insert; answers which of the keys are new, one index per new state."""
        if self.count + len(keys[0]) > FULL * (1 << self._bits):
            self._grow(len(keys[0]))
        fresh = self._insert(keys)
        self.count += len(fresh)
        return fresh

    def _grow(self, more: int) -> None:
        old, bits = self._slots, self._bits
        used = np.flatnonzero(old[0] != EMPTY)
        while self.count + more > FULL * (1 << bits):
            bits += 1
        self._resize(bits)
        step = 1 << 16
        for low in range(0, len(used), step):
            part = used[low : low + step]
            self._insert([s.take(part) for s in old])

    def _insert(self, keys: list[Word]) -> Index:
        slot = self._hash(keys)
        first = self._slots[0]
        here = first.take(slot)
        unlike = here != keys[0]
        for stored, key in zip(self._slots[1:], keys[1:], strict=True):
            unlike |= stored.take(slot) != key
        waiting = np.flatnonzero(unlike)
        found: list[Index] = []
        last = (1 << self._bits) - 1
        slot = slot.take(waiting)
        here = here.take(waiting)
        while len(waiting):
            free = here == EMPTY
            at = np.flatnonzero(free)
            if len(at):
                place = slot.take(at)
                self._owner[place] = at
                won = at[self._owner.take(place) == at]
                place = slot.take(won)
                source = waiting.take(won)
                for stored, key in zip(self._slots, keys, strict=True):
                    stored[place] = key.take(source)
                found.append(source)
            # Losers look at the same slot again, others at the next one; equal keys drop out.
            slot = np.where(free, slot, (slot + 1) & last)
            here = first.take(slot)
            unlike = here != keys[0].take(waiting)
            for stored, key in zip(self._slots[1:], keys[1:], strict=True):
                unlike |= stored.take(slot) != key.take(waiting)
            stay = np.flatnonzero(unlike)
            waiting, slot, here = waiting.take(stay), slot.take(stay), here.take(stay)
        if not found:
            return np.zeros(0, np.intp)
        return np.concatenate(found) if len(found) > 1 else found[0]

    def number(self, keys: list[Word]) -> None:
        """Give the stored states the numbers 0, 1, ... in the order of `keys` (each stored, each once)."""
        self._owner[self._find(keys)] = np.arange(len(keys[0]), dtype=np.int32)

    def numbers(self, keys: list[Word]) -> Index:
        """The numbers of stored states, given by `number`."""
        return self._owner.take(self._find(keys)).astype(np.intp)

    def _find(self, keys: list[Word]) -> Index:
        slot = self._hash(keys)
        last = (1 << self._bits) - 1
        waiting = np.arange(len(slot))
        while len(waiting):
            here = slot.take(waiting)
            waiting = waiting[_unlike(self._slots, here, [k.take(waiting) for k in keys])]
            slot[waiting] = (slot[waiting] + 1) & last
        return slot
