"""A KV connector as people write them: finished prompts go on a shelf, and later requests load what they share with one.

Scheduler side only; the worker side would copy blocks to and from host memory.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class NoLoads(KVConnectorMetadata):
    """What the worker side is told of a step."""


class HastyShelf(KVConnectorBase_V1, SupportsHMA):
    """Loads whole blocks of a known prompt at the start of the step that computes the rest."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.block_size: int = vllm_config.cache_config.block_size
        self.shelf: set[tuple[int, ...]] = set()

    def whole_blocks(self, tokens: int) -> int:
        """How many of the tokens lie in whole blocks."""
        return tokens // self.block_size * self.block_size

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        known = self.whole_blocks(request.num_tokens)
        prompt = tuple(request.all_token_ids[:known])
        on_shelf = any(shelved[:known] == prompt for shelved in self.shelf)
        return (max(0, known - num_computed_tokens) if on_shelf else 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The blocks are filled by the worker side in the step itself: nothing to remember."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return NoLoads()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.keep(request), None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.keep(request), None

    def keep(self, request: Any) -> bool:
        """Put what was computed on the shelf; the blocks are held until the worker side has copied them."""
        computed = self.whole_blocks(request.num_computed_tokens)
        self.shelf.add(tuple(request.all_token_ids[:computed]))
        return computed > 0

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Worker side: copy from the shelf."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Worker side."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Worker side: copy to the shelf."""

    def wait_for_save(self) -> None:
        """Worker side."""


class Shelf(HastyShelf):
    """The same, leaving the last token to compute: a step needs one to sample from."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        known = self.whole_blocks(request.num_tokens - 1)
        prompt = tuple(request.all_token_ids[:known])
        on_shelf = any(shelved[:known] == prompt for shelved in self.shelf)
        return (max(0, known - num_computed_tokens) if on_shelf else 0), False
