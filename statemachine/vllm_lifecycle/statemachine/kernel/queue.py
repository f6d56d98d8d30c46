"""Waiting queues: in order of arrival, or ordered by a key; both give every operation in O(1) or O(log n) plus a block move."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from vllm_lifecycle.statemachine.kernel.seq import Seq


class Queue(Protocol):
    """An ordered collection of waiting requests; each is in it at most once."""

    def append(self, seq: Seq) -> None:
        """A new request joins."""

    def prepend(self, seq: Seq) -> None:
        """A request that ran comes back."""

    def put_back(self, seqs: Iterable[Seq]) -> None:
        """Requests that a pass skipped return, in their order, ahead of the others."""

    def peek(self) -> Seq:
        """The next request; IndexError when empty."""

    def pop(self) -> Seq:
        """Remove and return the next request; IndexError when empty."""

    def remove(self, seq: Seq) -> None:
        """Take a request out; KeyError when it is not in."""

    def __contains__(self, seq: object) -> bool: ...
    def __iter__(self) -> Iterator[Seq]: ...
    def __len__(self) -> int: ...


class ArrivalQueue:
    """First come, first served; who comes back goes to the head."""

    def __init__(self) -> None:
        self._seqs: OrderedDict[Seq, None] = OrderedDict()

    def append(self, seq: Seq) -> None:
        """Join."""
        self._seqs[seq] = None

    def prepend(self, seq: Seq) -> None:
        """Come back."""
        self._seqs[seq] = None
        self._seqs.move_to_end(seq, last=False)

    def put_back(self, seqs: Iterable[Seq]) -> None:
        """Return those that were skipped."""
        for seq in reversed(list(seqs)):
            self.prepend(seq)

    def peek(self) -> Seq:
        """The next one."""
        for seq in self._seqs:
            return seq
        raise IndexError("the queue is empty")

    def pop(self) -> Seq:
        """Take out the next one."""
        if not self._seqs:
            raise IndexError("the queue is empty")
        seq = self._seqs.popitem(last=False)[0]
        self._shrink()
        return seq

    def remove(self, seq: Seq) -> None:
        """Take out this one."""
        del self._seqs[seq]
        self._shrink()

    def _shrink(self) -> None:
        """What a long queue took is given back when it is empty; deletion alone keeps it."""
        if not self._seqs:
            self._seqs.clear()

    def __contains__(self, seq: object) -> bool:
        return seq in self._seqs

    def __iter__(self) -> Iterator[Seq]:
        return iter(self._seqs)

    def __len__(self) -> int:
        return len(self._seqs)


class KeyQueue:
    """Ordered by a key of the request, smallest first; equal keys in order of their incarnation."""

    def __init__(self, key: Callable[[Seq], Any]) -> None:
        self._key = key
        self._rows: list[tuple[Any, int, Seq]] = []
        self._at: dict[Seq, tuple[Any, int, Seq]] = {}

    def append(self, seq: Seq) -> None:
        """Join."""
        row = (self._key(seq), seq.epoch, seq)
        self._at[seq] = row
        insort(self._rows, row)

    prepend = append

    def put_back(self, seqs: Iterable[Seq]) -> None:
        """Return those that were skipped."""
        for seq in seqs:
            self.append(seq)

    def peek(self) -> Seq:
        """The next one."""
        return self._rows[0][2]

    def pop(self) -> Seq:
        """Take out the next one."""
        seq = self._rows.pop(0)[2]
        del self._at[seq]
        return seq

    def remove(self, seq: Seq) -> None:
        """Take out this one."""
        row = self._at.pop(seq)
        del self._rows[bisect_left(self._rows, row)]

    def __contains__(self, seq: object) -> bool:
        return seq in self._at

    def __iter__(self) -> Iterator[Seq]:
        return (row[2] for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)
