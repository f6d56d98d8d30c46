"""Input in chunks from a former stage: who has no chunk to work on sits the pass out, in his place, with all that he has.

The gate moves nobody: a request without a chunk keeps its queue, its place, its slot, its state and its blocks, and the pass
leaves it out; its status reads WAITING_FOR_CHUNK meanwhile. vllm-omni's adapter goes on to carry the chunks; what it knows of a
request that has ended is forgotten at its end, and a poll that was under way then brings nothing.

A chunk is waited for until a deadline, where there is one (`chunk_timeout`): then its request ends with an error.

Rejected: queues that are emptied before the pass and filled again after it (order, slots and states are lost on the way).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache
from threading import Lock
from time import monotonic, sleep
from typing import Any

from vllm.v1.request import RequestStatus
from vllm_omni.distributed.omni_connectors.transfer_adapter.chunk_transfer_adapter import (
    OmniChunkTransferAdapter,
)

from vllm_lifecycle.adapters.omni.verified.settings import chunk_timeout
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.scheduling.loop import Scheduling
from vllm_lifecycle.statemachine.scheduling.plan import Plan

IDLE = Status.WAITING_FOR_STREAMING_REQ
"""A session that waits for its client waits for nobody else."""

PAUSE = 0.001
"""Seconds until a chunk that the transport did not take is tried again."""

REMEMBERED = 4096
"""Requests whose stream had not come to its end when they did, and of which late chunks are known as such."""


class Gated(Scheduling):
    """Passes that leave out who is parked."""

    parked: frozenset[Seq] = frozenset()

    def _lacking(self, seq: Seq) -> int:
        return 0 if seq in self.parked else super()._lacking(seq)

    def _ready(self, plan: Plan, seq: Seq) -> bool:
        return seq not in self.parked and super()._ready(plan, seq)


@cache
def _showing(cls: Any) -> Any:
    """A request class whose instances say that they wait for a chunk, in whatever state they do."""
    shown = cls.status

    def read(request: Any) -> Any:
        parked = request._seq.reason is None and request._seq in request._gate.parked
        return RequestStatus.WAITING_FOR_CHUNK if parked else shown.fget(request)

    members = {"status": property(read, shown.fset), "__module__": __name__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), members)


def shows(request: Any, gate: Gated) -> None:
    """The request says WAITING_FOR_CHUNK from now on while it is parked."""
    request._gate = gate
    request.__class__ = _showing(request.__class__)


class Chunks(OmniChunkTransferAdapter):  # type: ignore[misc]
    """vllm-omni's adapter, by incarnation.

    late        counts polls that came back for a request that had ended
    patience    seconds that a request waits for one chunk; 0: for ever
    """

    _pending_load_reqs: deque[Any]
    _pending_save_reqs: deque[Any]

    def __init__(self, config: Any) -> None:
        self._lock = Lock()  # the receiving thread starts within the next line
        self.late = 0
        self.patience = chunk_timeout(config.model_config)
        self._awaited: dict[Seq, float] = {}
        self._left: dict[str, int] = {}
        super().__init__(config)

    @classmethod
    def create_connector(cls, model_config: Any) -> Any:
        """The transport, which says in `taken` whether it took the last chunk."""
        connector = super().create_connector(model_config)
        put, connector.taken = connector.put, True

        def told(*args: Any, **kwargs: Any) -> Any:
            answer = put(*args, **kwargs)
            connector.taken = bool(answer[0])
            return answer

        connector.put = told
        return connector

    def _send_single_request(self, task: dict[str, Any]) -> None:
        """A chunk that is not taken is sent again, before those behind it."""
        self.connector.taken = True
        super()._send_single_request(task)
        if not self.connector.taken:
            self._pending_save_reqs.appendleft(task)
            sleep(PAUSE)

    def park(self, seqs: Iterable[Seq]) -> frozenset[Seq]:
        """Who has no chunk to work on; for each of them one is asked for."""
        if self.connector.stage_id == 0:
            return frozenset()
        with self._lock:
            return frozenset([seq for seq in seqs if seq.status is not IDLE and not self._has_chunk(seq)])

    def _has_chunk(self, seq: Seq) -> bool:
        rid = seq.id
        if rid in self._finished_load_reqs:
            self._finished_load_reqs.discard(rid)
            self._awaited.pop(seq, None)
            self.requests_with_ready_chunks.add(rid)
        has = rid in self.requests_with_ready_chunks or (
            rid in self.finished_requests and seq not in self._awaited
        )
        if has and seq.status is Status.WAITING_FOR_CHUNK:
            seq.status = Status.WAITING
        elif not has:
            if seq not in self._awaited:
                self._awaited[seq] = monotonic()
                self.load_async(seq.payload)
            if seq.status is Status.WAITING and not seq.held_kv:
                seq.status = Status.WAITING_FOR_CHUNK
        return has

    def overdue(self) -> list[Seq]:
        """Requests whose chunk does not come in time."""
        if not self.patience:
            return []
        first = monotonic() - self.patience
        with self._lock:
            return [seq for seq, since in self._awaited.items() if since < first]

    def _poll_single_request(self, request: Any) -> bool:
        with self._lock:
            if request.is_finished():
                self.late += 1
                return True
            return bool(super()._poll_single_request(request))

    def begin(self, request: Any) -> None:
        """A request arrives; what a former stage sent late for one that had its external id is taken away, and counted.

        Only what that one had not read: with nothing read, a first chunk that is there already is taken to be the former one's.
        """
        external, former = request.external_req_id, self.connector.stage_id - 1
        index = self._left.pop(external, None)
        while index is not None:
            late = self.connector.get(str(former), str(former + 1), f"{external}_{former}_{index}")
            if late is None:
                return
            self.late += 1
            index += 1

    def forget(self, seq: Seq) -> None:
        """The request has ended: nothing of what it was to receive stays; what it sends is on its way still."""
        rid = seq.id
        with self._lock:
            self._awaited.pop(seq, None)
            external = seq.payload.external_req_id
            read = self.get_req_chunk.pop(rid, 0)
            if rid not in self.finished_requests and self.connector.stage_id:
                self._left[external] = read
                while len(self._left) > REMEMBERED:
                    del self._left[next(iter(self._left))]
            self.finished_requests.discard(rid)
            self.requests_with_ready_chunks.discard(rid)
            self.request_ids_mapping.pop(rid, None)
            self.request_payload.pop(external, None)
            self._finished_load_reqs.discard(rid)
            waiting = [request for request in self._pending_load_reqs if request is not seq.payload]
            self._pending_load_reqs = deque(waiting)
