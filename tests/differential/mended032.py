"""vLLM 0.32.0's own schedulers with known defects mended, one small class each: see mended.py, which does it for 0.13.0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as OwnAsync
from vllm.v1.core.sched.scheduler import Scheduler as Own

from vllm_lifecycle.adapters.vllm.verified.encoder import Cache, CrossCache


class StepsHoldBlocks(Own):  # type: ignore[misc]
    """VLLM-45357: what 0.32.0 does for connectors that load, it does always: steps in flight hold the blocks of their rows.

    Each request waits for the newest step that it took part in, not for all that were planned since.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.defer_block_free = True

    def _free_request_blocks(self, request: Any) -> None:
        if self._request_blocks_can_be_freed(request):
            self.kv_cache_manager.free(request)
            return
        blocks = self.kv_cache_manager.pop_blocks_for_free(request)
        if blocks:
            self.deferred_frees.append((request.last_sched_seq, blocks))

    def _drain_deferred_frees(self) -> None:
        done = [entry for entry in self.deferred_frees if entry[0] <= self.processed_step_seq]
        for entry in done:
            self.deferred_frees.remove(entry)
            self.kv_cache_manager.block_pool.free_blocks(reversed(entry[1]))


class HeldKeepAwake(Own):  # type: ignore[misc]
    """VLLM-43433: the engine stays awake while blocks of a finished request are held for a transfer."""

    def has_finished_requests(self) -> bool:
        return super().has_finished_requests() or len(self.requests) > sum(self.get_request_counts())


class EncoderBudgetKept(Own):  # type: ignore[misc]
    """VLLM-55733: an input of an encoder-decoder model gives its share back once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        size = self.encoder_cache_manager.cache_size
        kind = CrossCache if self.is_encoder_decoder else Cache
        self.encoder_cache_manager = kind(cache_size=size)


class ErrorsInOrder(Own):  # type: ignore[misc]
    """Requests that end with an error are told in order of arrival, not in the order of a set."""

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        if isinstance(request_ids, set):
            request_ids = [rid for rid in self.requests if rid in request_ids]
            return [
                request for rid in request_ids for request in super().finish_requests(rid, finished_status)
            ]
        return super().finish_requests(request_ids, finished_status)


MENDS: Iterable[type[Any]] = (StepsHoldBlocks, HeldKeepAwake, EncoderBudgetKept, ErrorsInOrder)


class Scheduler(*MENDS):  # type: ignore[misc]
    """The synchronous scheduler, mended."""


class AsyncScheduler(*MENDS, OwnAsync):  # type: ignore[misc]
    """The asynchronous scheduler, mended."""
