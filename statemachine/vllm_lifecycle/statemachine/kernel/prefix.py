"""The prefix cache: which full blocks hold the KV of a known run of tokens.

A key names a whole prefix up to the end of a block (a chain of hashes), so the longest hit of a sequence is found key by key.
Equal blocks are not merged, because a block in a table never changes its number: one key may have several blocks, and a look-up
takes the oldest. Nearly all keys have one, so only the others cost a dict.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import islice


class Prefixes:
    """Keys of the blocks of a pool of `size` blocks.

    keys    for each block its key, or None
    first   for each key its oldest block
    copies  for keys with several blocks, all of them, oldest first
    """

    __slots__ = ("copies", "first", "keys")

    def __init__(self, size: int) -> None:
        self.keys: list[Hashable | None] = [None] * size
        self.first: dict[Hashable, int] = {}
        self.copies: dict[Hashable, dict[int, None]] = {}

    def longest(self, keys: Iterable[Hashable], most: int) -> list[int]:
        """The blocks of the longest known run at the beginning of `keys`, at most `most` of them."""
        return list(iter(map(self.first.get, islice(keys, most)).__next__, None))

    def add(self, blocks: Sequence[int], keys: Sequence[Hashable]) -> None:
        """Each block gets its key; one that several tables share may have it already, when all of them compute it again."""
        own, first = self.keys, self.first
        for block, key in zip(blocks, keys, strict=True):
            if own[block] is not None:
                assert own[block] == key, f"block {block} has another key already"
                continue
            own[block] = key
            oldest = first.setdefault(key, block)
            if oldest != block:
                self.copies.setdefault(key, {oldest: None})[block] = None

    def forget(self, blocks: Iterable[int]) -> list[Hashable]:
        """None of these blocks has a key any more; gives the keys that they had, in order."""
        own, first, copies = self.keys, self.first, self.copies
        lost = []
        for block in blocks:
            key = own[block]
            if key is None:
                continue
            own[block] = None
            lost.append(key)
            if not copies or key not in copies:
                del first[key]
                continue
            equal = copies[key]
            del equal[block]
            first[key] = next(iter(equal))
            if len(equal) == 1:
                del copies[key]
        return lost

    def clear(self) -> None:
        """No block has a key."""
        self.keys = [None] * len(self.keys)
        self.first.clear()
        self.copies.clear()
