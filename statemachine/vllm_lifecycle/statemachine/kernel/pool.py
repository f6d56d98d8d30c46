"""A pool of KV-cache blocks: who holds a block is counted, and who is held by nobody is free.

Blocks are integers; a block is in the queue exactly when its count of holders is zero. The head of the queue is handed out
first, so the order of the queue is the order of eviction. Block 0 is the null block: a place in a table that needs no memory.
It has no count, is never handed out and never enters the queue.

An `OrderedDict` is the queue, because it pops the head, removes from the middle, appends and prepends in constant time; a plain
dict slows down as holes gather at its head. Rejected: an object per block (memory, time, garbage collection).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice


class Pool:
    """`size` blocks, the null block among them.

    refs    for each block, the number of holds that list it
    queue   the free blocks, next to be handed out first
    """

    __slots__ = ("queue", "refs", "size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a pool has at least the null block, not {size} blocks")
        self.size = size
        self.refs = [0] * size
        self.queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, size))

    @property
    def usage(self) -> float:
        """The share of the blocks that is held, from 0 to 1."""
        usable = self.size - 1
        return 1.0 - len(self.queue) / usable if usable else 0.0

    def take(self, n: int) -> list[int]:
        """Hand out the first `n` blocks of the queue; the caller has seen that there are so many."""
        queue, refs = self.queue, self.refs
        taken = list(islice(queue, n))
        for block in taken:
            del queue[block]
            refs[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these blocks; free ones leave the queue."""
        refs, queue = self.refs, self.queue
        for block in blocks:
            if block:
                if not refs[block]:
                    del queue[block]
                refs[block] += 1

    def idle(self, blocks: Sequence[int]) -> int:
        """How many of these blocks are free."""
        return list(map(self.refs.__getitem__, filter(None, blocks))).count(0)

    def give_back(self, blocks: Sequence[int]) -> list[int]:
        """One holder less for each block of a table, its end first; gives those that nobody holds now, in that order.

        They are in no queue yet: where they enter it is for the caller to say, with `append` and `prepend`.
        """
        refs = self.refs
        if list(map(refs.__getitem__, blocks)).count(1) == len(blocks):
            for block in blocks:
                refs[block] = 0
            return list(reversed(blocks))
        freed = []
        for block in reversed(blocks):
            if block:
                left = refs[block] - 1
                refs[block] = left
                if not left:
                    freed.append(block)
        return freed

    def append(self, blocks: Iterable[int]) -> None:
        """These free blocks are evicted last, in this order."""
        queue = self.queue
        for block in blocks:
            queue[block] = None

    def prepend(self, blocks: Sequence[int]) -> None:
        """These free blocks are handed out first, in this order."""
        queue = self.queue
        for block in reversed(blocks):
            queue[block] = None
            queue.move_to_end(block, last=False)
