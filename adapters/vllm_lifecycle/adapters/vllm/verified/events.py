"""What the block store tells others: vLLM's KV cache events, and the samples of its block statistics.

Both are listeners of the store; neither is asked by a decision.  Without them the store spends nothing on telling.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from vllm.distributed.kv_events import MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import KVCacheBlock, maybe_convert_block_hash

from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.statemachine.kernel.seq import Seq


class CacheEvents:
    """The store's changes as vLLM's events, gathered until they are published."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._events: list[Any] = []

    def stored(self, seq: Seq, first: int, last: int) -> None:
        hashes, size = seq.hashes, self._size
        lora = seq.payload.lora_request
        self._events.append(
            BlockStored(
                block_hashes=[maybe_convert_block_hash(key) for key in hashes[first:last]],
                parent_block_hash=maybe_convert_block_hash(hashes[first - 1]) if first else None,
                token_ids=seq.tokens[first * size : last * size],
                block_size=size,
                lora_id=lora.adapter_id if lora else None,
                medium=MEDIUM_GPU,
            )
        )

    def removed(self, key: Hashable) -> None:
        self._events.append(BlockRemoved(block_hashes=[maybe_convert_block_hash(key)], medium=MEDIUM_GPU))

    def cleared(self) -> None:
        self._events.append(AllBlocksCleared())

    def take(self) -> list[Any]:
        taken, self._events = self._events, []
        return taken


class CacheWatch:
    """Look-ups are counted; how long blocks live is sampled by vLLM's collector (None: it is not)."""

    def __init__(self, stats: Stats, collector: Any) -> None:
        self._stats, self._collector = stats, collector

    def looked_up(self, seq: Seq, tokens: int) -> None:
        self._stats.looked_up(seq, tokens)

    def taken(self, blocks: list[int]) -> None:
        if self._collector is not None:
            for block in map(KVCacheBlock, blocks):
                self._collector.on_block_evicted(block)
                self._collector.on_block_allocated(block)

    def shared(self, blocks: list[int]) -> None:
        if self._collector is not None:
            for block in map(KVCacheBlock, blocks):
                self._collector.on_block_accessed(block)

    def lost(self, block: int) -> None:
        if self._collector is not None:
            self._collector.on_block_evicted(KVCacheBlock(block))

    def reset(self) -> None:
        if self._stats.on:
            self._stats.prefix.reset = True
        if self._collector is not None:
            self._collector.reset()
