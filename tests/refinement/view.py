"""What a kernel shows of itself, as cells of the specification's state, and whether a state agrees with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import Any

from vllm_lifecycle.spec.lang.packed import Layout, Packed
from vllm_lifecycle.spec.lifecycles.vocabulary import OVER, Kind, Row, Status, Transfer
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step

STATUS = {status: i for i, status in enumerate(Status)}
STATE = {state: i for i, state in enumerate(Transfer)}
ROW = {row: i for i, row in enumerate(Row)}
OF_A_REQUEST = ("status", "in_waiting", "in_running", "announced", "kv_holding", "notice", "triggered")
OF_A_BLOCK = ("free", "listed", "ref")
SHOWN = frozenset({*OF_A_REQUEST, *OF_A_BLOCK, "transfer", "pinned", "table", "before", "row", "cached"})
"""Variables of the specification that a kernel shows."""
NOBODY = (STATUS[Status.FREED], 0, 0, 0, 0)


@dataclass(frozen=True)
class Shown:
    """A kernel's state: numbers for the places of a view that have to be equal, and what it finds in its prefix cache."""

    view: View
    exact: tuple[int, ...]
    cached: Sequence[int]

    def agrees(self, state: Packed) -> bool:
        """The specification's state shows what the kernel shows."""
        view = self.view
        return view.read(state) == self.exact and all(
            state[i] >= value for i, value in zip(view.cached, self.cached, strict=True)
        )

    def forgetting(self, state: Packed) -> Packed:
        """A state that agrees, without what the kernel does not find in its prefix cache."""
        less = [i for i, value in zip(self.view.cached, self.cached, strict=True) if state[i] > value]
        return tuple([0 if i in less else value for i, value in enumerate(state)]) if less else state

    def differences(self, state: Packed) -> list[tuple[int, int]]:
        """Places where the state does not agree, with the kernel's number."""
        view = self.view
        return [(i, v) for i, v in zip(view.exact, self.exact, strict=True) if v != state[i]] + [
            (i, v) for i, v in zip(view.cached, self.cached, strict=True) if v > state[i]
        ]

    def apart(self, state: Packed) -> int:
        """At how many places the state does not agree."""
        return len(self.differences(state))


class View:
    """Where the specification has what a kernel with these steps in flight shows; of some of that it has nothing.

    exact   places of what has to be equal; cached: of the prefix cache, of which the kernel may have less
    """

    def __init__(
        self, layout: Layout, requests: tuple[str, ...], blocks: tuple[int, ...], flights: tuple[int, ...]
    ) -> None:
        self.requests, self.blocks = requests, blocks
        cells: list[tuple[str, tuple[Any, ...]]] = []
        for r in requests:
            cells += ((name, (r,)) for name in OF_A_REQUEST)
            for kind in Kind:
                cells += (("transfer", (r, kind)), *(("pinned", (r, kind, b)) for b in blocks))
            cells += (("table", (r, b)) for b in blocks)
            cells += (("before", (r, other)) for other in requests)
        cells += ((name, (b,)) for b in blocks for name in OF_A_BLOCK)
        cells += (("row", (k, r)) for k in flights for r in requests)
        places = {cell: i for i, cell in enumerate(layout.cells)}
        self._there = [cell in places for cell in cells]
        self.exact = tuple(places[cell] for cell in cells if cell in places)
        self.cached = tuple(places["cached", (b,)] for b in blocks if ("cached", (b,)) in places)
        self.read = itemgetter(*self.exact)

    def of(self, kernel: Kernel, store: PagedStore, flights: dict[int, Step], waits: bool) -> Shown:
        """What this kernel shows; `waits`: a pass has taken waiting requests out of their queue, and will put them back."""
        blocks, notices, running = self.blocks, kernel.notices, kernel.running
        seqs = [kernel.seqs.get(r) for r in self.requests]
        waiting: dict[Seq | None, int] = {seq: i for i, seq in enumerate(kernel.waiting)}
        values: list[int] = []
        for r, seq in zip(self.requests, seqs, strict=True):
            transfers: tuple[Any, ...] = (None, None, None)
            table: list[int] = []
            if seq is None:
                values += (*NOBODY, r in notices, 0)
            else:
                transfers, table = (seq.receive, seq.send, seq.handoff), seq.table
                values += (
                    STATUS[seq.status], seq in waiting or (waits and _waits(seq)), seq in running, seq.announced, seq.held_kv,
                    r in notices, seq.triggered and seq.status not in OVER,
                )  # fmt: skip
            for transfer in transfers:
                values.append(STATE[_state(transfer)])
                held = _held(transfer, table)
                values += [b in held for b in blocks]
            values += [b in table for b in blocks]
            place = waiting.get(seq, -1)
            values += [0 <= place < waiting.get(second, -1) for second in seqs]
        queue = store.pool.queue
        tables = [seq.table for seq in seqs if seq is not None]
        for b in blocks:
            free = b in queue
            values += (free, free, sum([b in table for table in tables]))
        for step in flights.values():
            rows = {row.seq.id: row for row in step.rows}
            values += [ROW[_worth(rows.get(r))] for r in self.requests]
        keys = store.prefixes.keys
        cached = [keys[b] is not None for b in blocks] if self.cached else []
        return Shown(self, tuple(compress(values, self._there)), cached)


def _waits(seq: Seq) -> bool:
    """A pass takes requests that it skips out of the queue, and puts them back at its end."""
    return seq.status is not Status.RUNNING and seq.status not in OVER


def _state(transfer: Any) -> Transfer:
    """What is known of a transfer; a load of which nothing came whole has failed."""
    if transfer is None:
        return Transfer.NONE
    state: Transfer = transfer.state
    return Transfer.FAILED if state is Transfer.DONE and transfer.valid == 0 else state


def _held(transfer: Any, table: list[int]) -> list[int]:
    """The blocks that an outstanding transfer touches."""
    if transfer is None or transfer.state not in (Transfer.NEEDED, Transfer.ACTIVE):
        return []
    held: list[int] = transfer.hold.blocks[0] if transfer.hold else table
    return held


def _worth(row: Any) -> Row:
    """What a row in flight is worth now."""
    if row is None:
        return Row.NONE
    seq = row.seq
    if seq.status in (Status.FREED, Status.WAITING_FOR_TRANSFER_FREE) or row.run < seq.deliver_from:
        return Row.DROPPED
    return Row.CURRENT if row.run == seq.run else Row.DELIVERABLE
