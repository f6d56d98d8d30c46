"""vLLM's own scheduler, its encoder cache mended (see mended.py), on the cache that it has: ours is not held against itself."""

from __future__ import annotations

from typing import Any

from tests.differential.counted import Counted


class EncoderBudgetKept(Counted):
    """VLLM-52482, VLLM-55733: the drop list names no entry that is there; an input gives its share back once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        manager = self.encoder_cache_manager
        self.shares: set[tuple[str, int]] = set()
        self.take, self.give, self.drops = (
            manager.allocate,
            manager.free_encoder_input,
            manager.get_freed_mm_hashes,
        )
        if self.is_encoder_decoder:
            manager.allocate, manager.free_encoder_input = self.taken, self.given
        else:
            manager.get_freed_mm_hashes = self.dropped

    def taken(self, request: Any, index: int) -> None:
        self.shares.add((request.request_id, index))
        self.take(request, index)

    def given(self, request: Any, index: int) -> None:
        share = (request.request_id, index)
        if share in self.shares:
            self.shares.discard(share)
            self.give(request, index)
        else:
            self.meets(EncoderBudgetKept)

    def dropped(self) -> list[str]:
        cached = self.encoder_cache_manager.cached
        named = self.drops()
        gone = [name for name in named if name not in cached]
        if gone != named:
            self.meets(EncoderBudgetKept)
        return gone
