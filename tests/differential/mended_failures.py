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
