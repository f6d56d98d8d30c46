"""A pool of KV-cache blocks: who holds a block is counted, and who is held by nobody is free.

Blocks are integers; a block is in the queue exactly when its count of holders is zero. The head of the queue is handed out
first, so the order of the queue is the order of eviction. Block 0 is the null block: a place in a table that needs no memory.
It has no count, is never handed out and never enters the queue.

The queue is a deque. A free block that is found again leaves it from the middle: its entry stays where it is and is counted as
void, and since a block that comes back is entered behind it, of a block's entries the first ones are the void ones.
Rejected: an `OrderedDict` (three times the time per block, most of it cache misses); a plain dict, which slows down as holes
gather at its head; an object per block (memory, time, garbage collection).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class Pool:
    """`size` blocks, the null block among them.

    refs    for each block, the number of holds that list it
    """

    __slots__ = ("_entries", "_void", "_voids", "refs", "size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a pool has at least the null block, not {size} blocks")
        self.size = size
        self.refs = [0] * size
        self.queue = range(1, size)

    @property
    def queue(self) -> list[int]:
        """The free blocks, next to be handed out first; to set it puts them in another order."""
        void, free = self._void.copy(), []
        for block in self._entries:
            if void.get(block):
                void[block] -= 1
            else:
                free.append(block)
        return free

    @queue.setter
    def queue(self, blocks: Iterable[int]) -> None:
        self._entries = deque(blocks)
        self._void: dict[int, int] = {}
        self._voids = 0

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._entries) - self._voids

    @property
    def usage(self) -> float:
        """The share of the blocks that is held, from 0 to 1."""
        usable = self.size - 1
        return 1.0 - self.free / usable if usable else 0.0

    def take(self, n: int) -> list[int]:
        """Hand out the first `n` blocks of the queue; the caller has seen that there are so many."""
        pop, refs, void = self._entries.popleft, self.refs, self._void
        taken = [] if void else [pop() for _ in range(n)]
        while len(taken) < n:
            block = pop()
            if block in void:
                self._passed(block)
            else:
                taken.append(block)
        for block in taken:
            refs[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these blocks; free ones leave the queue."""
        refs, void = self.refs, self._void
        for block in blocks:
            if block:
                if not refs[block]:
                    void[block] = void.get(block, 0) + 1
                    self._voids += 1
                refs[block] += 1
        if self._voids > self.size:
            self.queue = self.queue

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
        self._entries.extend(blocks)

    def prepend(self, blocks: Sequence[int]) -> None:
        """These free blocks are handed out first, in this order."""
        for block in blocks:
            while block in self._void:
                self._entries.remove(block)
                self._passed(block)
        self._entries.extendleft(reversed(blocks))

    def _passed(self, block: int) -> None:
        """A void entry of this block is gone."""
        self._voids -= 1
        if self._void[block] == 1:
            del self._void[block]
        else:
            self._void[block] -= 1
