"""The former stage and the receiving thread of the chunk adapter, played between calls of the scheduler.

A former stage produces chunks for a request in order, one at a time, until the last one; it learns late that a client went
away, so a chunk may still come for a request that was aborted.  The receiving loop takes the polled requests, finds their
chunks or puts them back.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from vllm_lifecycle.adapters.vllm.contract import LEGAL
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import Chunk

from .config import STAGE, ChunkStore
from .seams import Seams

MOST = 3
"""Chunks that a former stage produces for one request at most."""
Owner = tuple[str, int]


class Chunks:
    """The chunks on their way to one scheduler."""

    def __init__(self, driver: Driver, seams: Seams) -> None:
        self.driver = driver
        self.adapter: Any = seams.get("chunk adapter")
        self.produced: Counter[Owner] = Counter()
        self.ended: set[Owner] = set()
        self.in_hand: list[Any] = []
        """Requests that the receiving loop has taken and not yet put back."""
        self.lost: list[str] = []
        """Whose chunks the transport refused and the sending loop forgot."""

    @property
    def store(self) -> ChunkStore:
        """What the adapter reads from."""
        found: ChunkStore = self.adapter.connector
        return found

    def send(self) -> None:
        """The sending loop goes on: each output waiting to be sent is tried once; its errors are logged and dropped."""
        waiting = self.adapter._pending_save_reqs
        for task in [waiting.popleft() for _ in range(len(waiting))]:
            refused = self.store.refuses
            with suppress(Exception):
                self.adapter._send_single_request(task)
            if refused and not self.store.refuses and task not in waiting:
                self.lost.append(task["request"].request_id)

    def observe(self) -> None:
        """The receiving loop goes on: what it has in hand is looked up, then it takes what is polled for next.

        A call of the scheduler always finds it with requests in hand, which is when the two threads get into each other's
        way; a thread that is quicker sees no more than this one.
        """
        adapter = self.adapter
        self.in_hand += adapter._pending_load_reqs
        adapter._pending_load_reqs.clear()
        for request in self.in_hand:
            adapter.request_ids_mapping[request.request_id] = request.external_req_id
            if not adapter._poll_single_request(request):
                adapter._pending_load_reqs.append(request)
        self.in_hand = list(adapter._pending_load_reqs)
        adapter._pending_load_reqs.clear()

    def _owner(self, rid: str) -> Owner | None:
        life = self.driver.truth.lives.get(rid)
        return None if life is None else (rid, life.epoch)

    def candidates(self) -> list[Chunk]:
        """A further chunk for everybody."""
        return [Chunk(rid, last) for rid in self.driver.truth.lives for last in (False, True)]

    def judge(self, event: Chunk) -> str | None:
        """A former stage sends what it has until the last one, and not more than one ahead."""
        owner = self._owner(event.rid)
        most = MOST if event.last else MOST - 1  # there is always room for the last one
        if owner is None or owner in self.ended or self.produced[owner] >= most:
            return None
        waiting = any(key.startswith(f"{event.rid}_") for key in self.store.chunks)
        return None if waiting or self._unused(event.rid) else LEGAL

    def _unused(self, rid: str) -> bool:
        return rid in self.adapter._finished_load_reqs or rid in self.adapter.requests_with_ready_chunks

    def arrive(self, event: Chunk) -> None:
        """The chunk is in the store."""
        owner = self._owner(event.rid)
        assert owner is not None
        key = f"{event.rid}_{STAGE - 1}_{self.produced[owner]}"
        self.store.chunks[key] = {"finished": event.last}
        self.produced[owner] += 1
        if event.last:
            self.ended.add(owner)

    def owed(self) -> list[Chunk]:
        """A fair former stage sends its last chunk to everybody who has not got it."""
        lives = self.driver.truth.lives.values()
        return [
            Chunk(x.rid, True) for x in lives if not x.client_done and self.judge(Chunk(x.rid, True)) == LEGAL
        ]

    def polled(self) -> set[str]:
        """Ids that the adapter polls for."""
        return {r.request_id for r in (*self.in_hand, *self.adapter._pending_load_reqs)}

    def ready(self) -> set[str]:
        """Ids with a chunk that was not consumed."""
        return set(self.adapter._finished_load_reqs) | set(self.adapter.requests_with_ready_chunks)

    def state(self) -> tuple[Any, ...]:
        """For the canonical form."""
        adapter, lives = self.adapter, self.driver.truth.lives
        owners = [(rid, life.epoch) for rid, life in lives.items()]
        return (
            tuple(r.request_id for r in self.in_hand),
            tuple(sorted(adapter._finished_load_reqs)),
            tuple(sorted(adapter.requests_with_ready_chunks)),
            tuple(sorted(adapter.finished_requests)),
            tuple(sorted(adapter.get_req_chunk.items())),
            tuple(sorted(tuple(key.rsplit("_", 2)) for key in self.store.chunks)),
            tuple(self.lost),
            (self.store.refuses, len(adapter.put_req_chunk)),
            tuple((owner[0], self.produced[owner], owner in self.ended) for owner in owners),
        )
