"""vLLM's own scheduler, mended where loads in a step fail (see mended.py); the same for both releases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.differential.counted import Counted


class SharersComputeAgain(Counted):
    """Each request that has a block whose load failed computes it again.

    The original lets only the first of them do so and has the others go on from behind it, in the same pass, although the first
    may be given fewer tokens than reach to that block (threshold, budget): they then read what nobody has computed.
    """

    def _update_requests_with_invalid_blocks(
        self, requests: Iterable[Any], invalid_block_ids: set[int], *args: Any, **kwargs: Any
    ) -> tuple[set[str], int, set[int]]:
        affected: set[str] = set()
        lost: set[int] = set()
        tokens = 0
        for request in list(requests):
            found, count, evicted = super()._update_requests_with_invalid_blocks(
                [request], invalid_block_ids, *args, **kwargs
            )
            if evicted & lost:
                self.meets(SharersComputeAgain)
            affected |= found
            tokens += count
            lost |= evicted
        return affected, tokens, lost


class LostBlocksAreNotFound(Counted):
    """What a failed load in the step leaves behind is in the prefix cache no longer, until it has been computed.

    The original forgets such blocks when the request is to fail, but not when it computes them again: should it give way first,
    or somebody else look up the same tokens, what nobody has computed is found.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        pool = self.kv_cache_manager.block_pool
        self.enter, pool.cache_full_blocks = pool.cache_full_blocks, self.entered

    def entered(
        self, *, blocks: list[Any], num_cached_blocks: int, num_full_blocks: int, **more: Any
    ) -> None:
        """Who shares a block with one that has entered it again does not enter it twice."""
        while num_cached_blocks < num_full_blocks and blocks[num_cached_blocks].block_hash is not None:
            num_cached_blocks += 1
        self.enter(
            blocks=blocks, num_cached_blocks=num_cached_blocks, num_full_blocks=num_full_blocks, **more
        )

    def _update_requests_with_invalid_blocks(
        self, requests: Iterable[Any], *args: Any, **kwargs: Any
    ) -> tuple[set[str], int, set[int]]:
        asked = list(requests)
        affected, tokens, lost = super()._update_requests_with_invalid_blocks(asked, *args, **kwargs)
        known = self.kv_cache_manager.coordinator.single_type_managers[0].num_cached_block
        for request in asked:
            rid, first = request.request_id, request.num_computed_tokens // self.block_size
            if rid in affected and known.get(rid, 0) > first and request in self.running:
                self.meets(LostBlocksAreNotFound)
                known[rid] = first
                self.kv_cache_manager.evict_blocks(set(self.kv_cache_manager.get_block_ids(rid)[0][first:]))
        return affected, tokens, lost
