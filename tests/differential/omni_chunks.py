"""Input in chunks, for a pair: a former stage that sends them, the receiving loop, and the original's gate mended.

The adapter's threads are not started: before each pass the receiving loop of both sides is played once. Which chunk arrives
when follows from the request's id, the chunk's number and the number of the step, so that a case replays.

`Gated` mends the original's gate (A22, A23, A37: whom it takes out of his queue for a pass loses his place, his slot or his
state): who has no chunk keeps his place and sits the pass out.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any
from zlib import crc32

from tests.differential.counted import Counted
from tests.differential.side import Side
from vllm.v1.request import RequestStatus
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler

from vllm_lifecycle.adapters.omni.config import STAGE

MOST = 4
"""Chunks of one request at most."""


def _number(*parts: object) -> int:
    return crc32(" ".join(map(str, parts)).encode())


class FormerStage:
    """Sends chunks to both sides, in order, each at most one ahead of what was read."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self.adapters = [side.scheduler.chunk_transfer_adapter for side in sides]

    def arrive(self, step: int) -> Counter[str]:
        """What comes before this step is received on both sides; how many chunks, and how many of them the last of theirs."""
        found: Counter[str] = Counter()
        first = self.adapters[0]
        for request in list(first._pending_load_reqs):
            rid = request.request_id
            number = first.get_req_chunk.get(rid, 0)
            if request.is_finished() or _number(rid, number, step) % 3:
                continue
            last = number + 1 >= 1 + _number(rid) % MOST
            found["chunks"] += 1
            found["last chunks"] += last
            for adapter in self.adapters:
                adapter.connector.chunks[f"{rid}_{STAGE - 1}_{number}"] = {"finished": last, "number": number}
        for adapter in self.adapters:
            self._receive(adapter)
        return found

    @staticmethod
    def _receive(adapter: Any) -> None:
        """The receiving loop looks once for everybody."""
        waiting, adapter._pending_load_reqs = list(adapter._pending_load_reqs), deque()
        for request in waiting:
            adapter.request_ids_mapping[request.request_id] = request.external_req_id
            if not adapter._poll_single_request(request):
                adapter._pending_load_reqs.append(request)

    def waits(self, live: set[str]) -> list[dict[str, Any]]:
        """What each side's adapter has of requests that are there: who is polled for, ready, or has all."""
        return [
            {
                "polled": sorted(r.request_id for r in adapter._pending_load_reqs if r.request_id in live),
                "ready": sorted(live & (adapter._finished_load_reqs | adapter.requests_with_ready_chunks)),
                "complete": sorted(live & adapter.finished_requests),
            }
            for adapter in self.adapters
        ]


class Gated(OmniARScheduler, Counted):  # type: ignore[misc]
    """A22, A23, A37: who has no chunk sits the pass out and keeps his place, slot and state."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.chunk_transfer_adapter:
            self.polled: set[str] = set()
            self.chunk_transfer_adapter.process_pending_chunks = lambda waiting, running: None
            self.chunk_transfer_adapter.restore_queues = lambda waiting, running: None

    def schedule(self) -> Any:
        adapter = self.chunk_transfer_adapter
        if not adapter:
            return super().schedule()
        waiting = {
            r: (r.status, r.streaming_queue) for r in self.waiting if self._idle(r) or not self._has_chunk(r)
        }
        running = {r: r.num_computed_tokens for r in self.running if not self._has_chunk(r)}
        for request in waiting:
            request.status = RequestStatus.WAITING_FOR_STREAMING_REQ  # a pass leaves such ones in their place
            request.streaming_queue = None
        for request in running:
            request.num_computed_tokens = request.num_tokens_with_spec + request.num_output_placeholders
        try:
            return super().schedule()
        finally:
            if waiting or running:
                self.meets(Gated)
            for request, (status, queue) in waiting.items():
                request.status, request.streaming_queue = status, queue
            for request, computed in running.items():
                if request.status is RequestStatus.RUNNING:
                    request.num_computed_tokens = computed

    @staticmethod
    def _idle(request: Any) -> bool:
        return bool(request.status == RequestStatus.WAITING_FOR_STREAMING_REQ)

    def _has_chunk(self, request: Any) -> bool:
        adapter, rid = self.chunk_transfer_adapter, request.request_id
        if rid in adapter._finished_load_reqs:
            adapter._finished_load_reqs.discard(rid)
            adapter.requests_with_ready_chunks.add(rid)
            self.polled.discard(rid)
        if rid in adapter.requests_with_ready_chunks or (
            rid in adapter.finished_requests and rid not in self.polled
        ):
            return True
        if rid not in self.polled:
            self.polled.add(rid)
            adapter.load_async(request)
        return False
