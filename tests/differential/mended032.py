"""vLLM 0.32.0's own schedulers with known defects mended, one small class each: see mended.py, which does it for 0.13.0."""

from __future__ import annotations

from typing import Any

from tests.differential.counted import Counted, PassesGoOn
from tests.differential.mended_encoder import EncoderBudgetKept
from tests.differential.mended_failures import LostBlocksAreNotFound, SharersComputeAgain
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as OwnAsync
from vllm.v1.request import RequestStatus


class StepsHoldBlocks(Counted):
    """VLLM-45357: what 0.32.0 does for connectors that load, it does always: steps in flight hold the blocks of their rows.

    Each request waits for the newest step that it took part in, not for all that were planned since; its groups of blocks come
    back one by one, as they do without a step in flight.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.defer_block_free = True
        self.growing: Any = None
        self.grow, self.give_back = (
            self.kv_cache_manager.allocate_slots,
            self.kv_cache_manager.block_pool.free_blocks,
        )
        self.kv_cache_manager.allocate_slots = self.grown
        self.kv_cache_manager.block_pool.free_blocks = self.freed

    def grown(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.growing = request
        made = self.grow(request, *args, **kwargs)
        self.growing = None
        return made

    def freed(self, ordered_blocks: Any) -> None:
        """Blocks that leave a window wait for the step in flight as well."""
        request = self.growing
        if request is None or self._request_blocks_can_be_freed(request):
            self.give_back(ordered_blocks)
        else:
            self.meets(StepsHoldBlocks)
            self.deferred_frees.append((request.last_sched_seq, list(ordered_blocks)[::-1]))

    def _free_request_blocks(self, request: Any) -> None:
        if self._request_blocks_can_be_freed(request):
            self.kv_cache_manager.free(request)
            return
        self.meets(StepsHoldBlocks)
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            blocks = manager.pop_blocks_for_free(request.request_id)
            if blocks:
                self.deferred_frees.append((request.last_sched_seq, blocks))

    def reset_prefix_cache(self, reset_running_requests: bool = False, *args: Any) -> bool:
        """A forced reset forgets what is cached although steps in flight still hold some."""
        pool = self.kv_cache_manager.block_pool
        count = pool.get_num_free_blocks

        def free() -> int:
            kept = {block.block_id for _, blocks in self.deferred_frees for block in blocks}
            return int(count()) + len(kept)

        if reset_running_requests:
            pool.get_num_free_blocks = free
        try:
            done: bool = super().reset_prefix_cache(reset_running_requests, *args)
        finally:
            pool.get_num_free_blocks = count
        return done

    def _drain_deferred_frees(self) -> None:
        done = [entry for entry in self.deferred_frees if entry[0] <= self.processed_step_seq]
        for entry in done:
            self.deferred_frees.remove(entry)
            self.kv_cache_manager.block_pool.free_blocks(reversed(entry[1]))


class StepsHoldEntries(Counted):
    """VLLM-45347: encoder entries stay until the steps that read them are answered, chunks in flight and ended requests too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later: list[tuple[int, Any]] = []
        self.let_go = self.encoder_cache_manager.free
        self.encoder_cache_manager.free = self.let_go_later

    def _free_encoder_inputs(self, request: Any) -> None:
        ahead = max(0, request.num_in_flight_tokens - request.num_output_placeholders)
        self.met[StepsHoldEntries.__name__] += ahead > 0
        request.num_computed_tokens -= ahead
        super()._free_encoder_inputs(request)
        request.num_computed_tokens += ahead

    def update_from_output(self, *args: Any) -> Any:
        made = super().update_from_output(*args)
        done = [entry for entry in self.later if entry[0] <= self.processed_step_seq]
        for entry in done:
            self.later.remove(entry)
            self.let_go(entry[1])
        return made

    def let_go_later(self, request: Any) -> None:
        if any(one is request for _, one in self.later):
            return
        if not request.has_encoder_inputs or self._request_blocks_can_be_freed(request):
            self.let_go(request)
        else:
            self.meets(StepsHoldEntries)
            self.later.append((request.last_sched_seq, request))

    def schedule(self, *args: Any) -> Any:
        output = super().schedule(*args)
        self.later = [entry for entry in self.later if entry[1].request_id not in output.num_scheduled_tokens]
        return output


class FailedLoadsDropTokens(Counted):
    """Tokens that were computed from a load in the step, which then failed, count for nothing, nor does what awaited them."""

    def _handle_invalid_blocks(self, *args: Any) -> set[str]:
        affected: set[str] = super()._handle_invalid_blocks(*args)
        for request in self.running:
            if request.request_id in affected:
                if request.num_output_placeholders:
                    self.meets(FailedLoadsDropTokens)
                request.num_output_placeholders = 0
                request.spec_token_ids = []
                request.num_stale_output_tokens = request.num_in_flight_tokens
                request.drop_stale_output = True
        return affected


class LoadsHoldBlocks(Counted):
    """VLLM-46240: who ends during a load keeps the blocks until the load, and a send if there is one, are done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.receiving: set[str] = set()
        self.sending: set[str] = set()
        self.over: list[Any] | None = None

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
        if delay_free_blocks:
            self.receiving.add(request.request_id)
        return super()._free_request(request, delay_free_blocks)

    def _connector_finished(self, request: Any) -> Any:
        delay, params = super()._connector_finished(request)
        if delay:
            self.sending.add(request.request_id)
        return delay, params

    def _free_blocks(self, request: Any) -> None:
        if self.over is None:
            super()._free_blocks(request)
        else:  # with the last of its transfers, whose turn that is
            self.over = [other for other in self.over if other is not request] + [request]

    def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        self.over = []
        super()._update_from_kv_xfer_finished(kv_connector_output)
        over, self.over = self.over, None
        self.receiving -= kv_connector_output.finished_recving or set()
        self.sending -= kv_connector_output.finished_sending or set()
        for request in over:
            if request.request_id in self.receiving | self.sending:
                self.meets(LoadsHoldBlocks)
            else:
                self._free_blocks(request)


class LoadsHaveRoom(Counted):
    """VLLM-29877, VLLM-45388: a load has a slot, and what it needs to run afterwards is promised to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allocate_any = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self.allocate_slots

    def loads(self) -> list[Any]:
        waits = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        return [
            request
            for request in self.requests.values()
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            or (request.num_computed_tokens and request.status in waits)
        ]

    @property
    def max_num_active_reqs(self) -> int:
        """One that does not stop a pass, or, without a slot for the head of the queue, one that does."""
        running, loads = len(self.running), self.loads()
        queue = self.kv_holding_waiting or self.waiting
        full = running + len(loads) >= self.slots
        return running if full and queue and queue.peek_request() not in loads else running + 1

    @max_num_active_reqs.setter
    def max_num_active_reqs(self, slots: int) -> None:
        self.slots = slots

    def needs(self, request: Any, tokens: int, hit: Any = None) -> int:
        manager = self.kv_cache_manager
        found = hit if hit is not None else manager.empty_kv_cache_blocks
        tokens = min(tokens, self.max_model_len)
        blocks: int = manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=tokens,
            new_computed_blocks=found.blocks,
            num_encoder_tokens=0,
            total_computed_tokens=request.num_computed_tokens,
            num_local_computed_tokens=request.num_computed_tokens,
            num_tokens_main_model=tokens,
        )
        return blocks

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        reserved_blocks: int = 0,
        **more: Any,
    ) -> Any:
        loads = [] if request.status == RequestStatus.RUNNING else self.loads()
        if loads or delay_cache_blocks:
            later = 1 + self.num_lookahead_tokens
            keep = sum(self.needs(load, load.num_tokens + later) for load in loads if load is not request)
            if delay_cache_blocks:
                start = num_new_computed_tokens + num_external_computed_tokens
                whole = self.needs(request, request.num_tokens + later, new_computed_blocks)
                keep += whole - self.needs(request, start, new_computed_blocks)
                keep -= self.kv_cache_manager.watermark_blocks if more.get("has_scheduled_reqs") else 0
            if keep > reserved_blocks:
                self.meets(LoadsHaveRoom)
                reserved_blocks = keep
        return self.allocate_any(
            request,
            num_new_tokens,
            num_new_computed_tokens=num_new_computed_tokens,
            new_computed_blocks=new_computed_blocks,
            num_external_computed_tokens=num_external_computed_tokens,
            delay_cache_blocks=delay_cache_blocks,
            reserved_blocks=reserved_blocks,
            **more,
        )


class FailedLoadsReserveNothing(Counted):
    """A load of which nothing came is no prefill under way: else its request reserves for itself too when it is begun again.

    The original counts such a request among those whose rest has to fit beside it, so one that needs more than half the cache is
    never admitted again, however empty the cache is.
    """

    def _update_waiting_for_remote_kv(self, request: Any) -> None:
        super()._update_waiting_for_remote_kv(request)
        if not request.num_computed_tokens and request in self._inflight_prefills:
            self.meets(FailedLoadsReserveNothing)
            self._inflight_prefills.discard(request)


class OnlyComputedIsFound(LoadsHaveRoom):
    """Blocks that a pass was to fill for a request that gives way in the same pass are not found afterwards."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.filling: dict[str, list[int]] = {}

    def known(self, rid: str) -> list[int]:
        managers = self.kv_cache_manager.coordinator.single_type_managers
        return [manager.num_cached_block.get(rid, 0) for manager in managers]

    def allocate_slots(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        rid, hit = request.request_id, kwargs.get("new_computed_blocks")
        before = self.known(rid)
        if hit is not None and not any(before):
            before = [len(blocks) for blocks in hit.blocks]
        made = super().allocate_slots(request, *args, **kwargs)
        if made is not None and self.known(rid) != before:
            self.filling.setdefault(rid, before)
        return made

    def schedule(self, *args: Any) -> Any:
        output = super().schedule(*args)
        self.filling.clear()
        return output

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        rid = request.request_id
        if rid in self.filling:
            self.meets(OnlyComputedIsFound)
            tables = self.kv_cache_manager.get_block_ids(rid)
            for table, first, last in zip(tables, self.filling.pop(rid), self.known(rid), strict=True):
                self.kv_cache_manager.evict_blocks(set(table[first:last]) - {0})
        super()._preempt_request(request, *args, **kwargs)


class BlocklessWaitWithOthers(Counted):
    """Who has lost its blocks (nothing of its load came) waits with those who hold none (Scheduler._holds_kv_blocks)."""

    def schedule(self, *args: Any) -> Any:
        output = super().schedule(*args)
        for request in [r for r in self.kv_holding_waiting if not self._holds_kv_blocks(r)]:
            self.meets(BlocklessWaitWithOthers)
            self.kv_holding_waiting.remove_request(request)
            self.waiting.prepend_request(request)
        return output


class ErrorsInOrder(Counted):
    """Requests that end with an error are told in order of arrival, not in the order of a set."""

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        if not isinstance(request_ids, set):
            return super().finish_requests(request_ids, finished_status)
        ended = []
        if len(request_ids) > 1:
            self.meets(ErrorsInOrder)
        for rid in [rid for rid in self.requests if rid in request_ids]:
            ended += super().finish_requests(rid, finished_status)
        return ended


MENDS = (
    FailedLoadsReserveNothing,
    LoadsHoldBlocks,
    OnlyComputedIsFound,
    StepsHoldBlocks,
    StepsHoldEntries,
    SharersComputeAgain,
    LostBlocksAreNotFound,
    FailedLoadsDropTokens,
    EncoderBudgetKept,
    ErrorsInOrder,
    PassesGoOn,
    BlocklessWaitWithOthers,
)


class Scheduler(*MENDS):  # type: ignore[misc]
    """The synchronous scheduler, mended."""


class AsyncScheduler(*MENDS, OwnAsync):  # type: ignore[misc]
    """The asynchronous scheduler, mended."""
