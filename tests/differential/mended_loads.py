"""vLLM 0.13.0's own scheduler, mended where loads between steps meet blocks and slots (see mended.py)."""

from __future__ import annotations

from typing import Any

from tests.differential.counted import Counted
from vllm.v1.request import RequestStatus


class LoadsHoldBlocks(Counted):
    """VLLM-32255, VLLM-46240: who ends during a load keeps the blocks until the load, and a send if there is one, are done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ending: set[str] = set()
        self.sending: set[str] = set()
        self.loaded: set[str] = set()

    def finish_requests(self, request_ids: Any, finished_status: Any) -> None:
        ids = (request_ids,) if isinstance(request_ids, str) else request_ids
        self.ending |= {
            rid
            for rid in ids
            if (request := self.requests.get(rid)) is not None
            and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            and rid not in self.finished_recving_kv_req_ids
        }
        super().finish_requests(request_ids, finished_status)

    def _connector_finished(self, request: Any) -> Any:
        delay, params = super()._connector_finished(request)
        if delay:
            self.sending.add(request.request_id)
        return delay, params

    def _free_blocks(self, request: Any) -> None:
        rid = request.request_id
        if rid not in self.loaded:
            self.sending.discard(rid)
        if rid in self.ending | self.loaded:
            self.meets(LoadsHoldBlocks)
        else:
            super()._free_blocks(request)

    def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        received = kv_connector_output.finished_recving or ()
        done = self.ending.intersection(received)
        self.ending -= done
        for rid in received:
            if rid in done - self.sending:
                super()._free_blocks(self.requests[rid])
        sent = set(kv_connector_output.finished_sending or ())
        self.loaded = (done & self.sending) - sent  # 0.16.0 would free them here
        super()._update_from_kv_xfer_finished(kv_connector_output)
        self.loaded = set()
        self.finished_recving_kv_req_ids -= done


class LoadsHaveRoom(Counted):
    """VLLM-29877, VLLM-45388: a load has a slot, and what it needs to run afterwards is promised to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allocate_any = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self.allocate_slots

    def loads(self) -> list[Any]:
        return [
            request
            for request in self.requests.values()
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            or (request.num_computed_tokens and request.status < RequestStatus.RUNNING)
        ]

    @property
    def max_num_running_reqs(self) -> int:
        """One that never stops a pass, or, without a slot for the head of the queue, one that does."""
        running, loads = len(self.running), self.loads()
        full = running + len(loads) >= self.slots
        head = self.waiting.peek_request() if self.waiting else None
        if not full or head in loads:
            return self.slots + len(loads) + 1
        if running < self.slots:
            self.meets(LoadsHaveRoom)
        return running

    @max_num_running_reqs.setter
    def max_num_running_reqs(self, slots: int) -> None:
        self.slots = slots

    def needs(self, request: Any, tokens: int, hit: Any = None) -> int:
        coordinator = self.kv_cache_manager.coordinator
        found = hit.blocks if hit is not None else tuple([] for _ in coordinator.single_type_managers)
        blocks: int = coordinator.get_num_blocks_to_allocate(
            request.request_id, min(tokens, self.max_model_len), found, 0
        )
        return blocks

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        delay_cache_blocks: bool = False,
        num_lookahead_tokens: int = 0,
        **more: Any,
    ) -> Any:
        loads = [] if request.status == RequestStatus.RUNNING else self.loads()
        if loads or delay_cache_blocks:
            later = 1 + self.num_lookahead_tokens
            start = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
            total = start + num_lookahead_tokens
            keep = sum(self.needs(load, load.num_tokens + later) for load in loads if load is not request)
            if delay_cache_blocks:
                whole = self.needs(request, request.num_tokens + later, new_computed_blocks)
                keep += whole - self.needs(request, start, new_computed_blocks)
            free = self.kv_cache_manager.block_pool.get_num_free_blocks()
            needed = self.needs(request, total, new_computed_blocks)
            if needed + keep > free:
                if needed <= free:
                    self.meets(LoadsHaveRoom)
                return None
        return self.allocate_any(
            request,
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks,
            delay_cache_blocks=delay_cache_blocks,
            num_lookahead_tokens=num_lookahead_tokens,
            **more,
        )
