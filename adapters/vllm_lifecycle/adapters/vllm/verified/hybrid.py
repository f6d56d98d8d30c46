"""vLLM's own `KVCacheManager` as the block store, for models that our own store does not serve: several groups of layers, sliding
windows, cross attention.

Rule: vLLM decides which blocks are found and taken; custody is ours. A table that ends while a step or a transfer still uses its
blocks is renamed in the manager's books, so that nobody finds it under the request's id and its references stay counted; blocks
that leave a window while a step in flight reads them are kept until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.single_type_kv_cache_manager import CrossAttentionManager, FullAttentionManager

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import Hit, Watch

Ids = tuple[list[int], ...]


class HybridStore:
    """A `BlockStore` on a manager of vLLM 0.13.0; `later` keeps a hold until the steps in flight of a sequence are answered."""

    def __init__(self, manager: Any, longest: int, watch: Watch | None = None) -> None:
        self.manager = manager
        self.longest = longest
        self.later: Callable[[Seq, Hold], None] | None = None
        self._pool = manager.block_pool
        self._managers = manager.coordinator.single_type_managers
        self._names: dict[Hold, str] = {}
        self._kept: set[int] = set()  # epochs whose table is a hold's now
        self._count = 0
        self._give_back = self._pool.free_blocks
        self._pool.free_blocks = self._freed
        self._growing: Seq | None = None

    @property
    def block_size(self) -> int:
        size: int = self._managers[0].block_size
        return size

    @property
    def size(self) -> int:
        size: int = self._pool.num_gpu_blocks
        return size

    @property
    def free(self) -> int:
        free: int = self._pool.get_num_free_blocks()
        return free

    @property
    def usage(self) -> float:
        usage: float = self._pool.get_usage()
        return usage

    def least(self, tokens: int) -> int:
        """Blocks without which so many tokens cannot be held: those of full attention."""
        return sum(
            -(-min(tokens, self.longest) // manager.block_size)
            for manager in self._managers
            if isinstance(manager, FullAttentionManager)
        )

    def blocks(self, ids: Ids) -> KVCacheBlocks:
        """Block ids as vLLM's `KVCacheBlocks`."""
        blocks = self._pool.blocks
        return KVCacheBlocks(tuple([blocks[i] for i in group] for group in ids))

    def lookup(self, seq: Seq) -> Hit:
        found, tokens = self.manager.get_computed_blocks(seq.payload)
        return Hit(found.get_block_ids(), tokens)

    def grow(
        self,
        seq: Seq,
        tokens: int,
        *,
        hit: Hit | None = None,
        external: int = 0,
        lookahead: int = 0,
        cache: bool = True,
        encoder_tokens: int = 0,
        keep: int = 0,
    ) -> Ids | None:
        """See `BlockStore.grow`."""
        found = hit is not None and hit.tokens > 0
        if not (tokens or external or found):
            raise Refused("grow", f"{seq} has no token to make room for")
        if found and any(self.table(seq)):
            raise Refused("grow", f"{seq} has a table, so it cannot use what a look-up found")
        total = seq.computed + (hit.tokens if hit else 0) + external + tokens + lookahead
        self.slide(seq)
        if self.needs(seq, total, hit, encoder_tokens) + keep > self.free:
            for manager in self._managers:
                _ = manager.req_to_blocks[seq.id]  # who tried is listed: see `BlockStore.common_prefix`
            return None
        self._recount(seq)
        self._growing = seq
        try:
            fresh = self._allocate(
                seq, tokens, hit if found else None, external, lookahead, cache, encoder_tokens
            )
        finally:
            self._growing = None
        seq.cached_blocks = self._managers[0].num_cached_block.get(seq.id, 0)
        return None if fresh is None else fresh.get_block_ids()

    def _allocate(
        self,
        seq: Seq,
        tokens: int,
        hit: Hit | None,
        external: int,
        lookahead: int,
        cache: bool,
        encoder_tokens: int,
    ) -> Any:
        """The manager's own allocation; None when it has not the blocks."""
        return self.manager.allocate_slots(
            seq.payload,
            tokens + external,
            hit.tokens if hit is not None else 0,
            self.blocks(hit.blocks) if hit is not None else None,
            num_lookahead_tokens=lookahead,
            delay_cache_blocks=not cache,
            num_encoder_tokens=encoder_tokens,
        )

    def _recount(self, seq: Seq) -> None:
        """Blocks that lost their keys (a failed load) are to get them again, unless another table gave them back meanwhile."""
        for manager in self._managers:
            known = manager.num_cached_block.get(seq.id, 0)
            if known > seq.cached_blocks:
                blocks = manager.req_to_blocks[seq.id]
                bare = (i for i in range(seq.cached_blocks, known) if blocks[i].block_hash is None)
                manager.num_cached_block[seq.id] = next(bare, known)

    def needs(self, seq: Seq, total: int, hit: Hit | None = None, encoder_tokens: int = 0) -> int:
        known = [seq.id in manager.req_to_blocks for manager in self._managers]
        found = self.blocks(hit.blocks).blocks if hit is not None else tuple([] for _ in self._managers)
        needed = 0
        for manager, had, blocks in zip(self._managers, known, found, strict=True):
            if isinstance(manager, CrossAttentionManager):
                more = manager.get_num_blocks_to_allocate(seq.id, encoder_tokens, [])
            else:
                more = manager.get_num_blocks_to_allocate(seq.id, min(total, self.longest), blocks)
            needed += max(0, more)
            if not had:
                manager.req_to_blocks.pop(seq.id, None)
        return needed

    def cache(self, seq: Seq, upto: int) -> None:
        self._recount(seq)
        self.manager.cache_blocks(seq.payload, upto)
        seq.cached_blocks = self._managers[0].num_cached_block.get(seq.id, 0)

    def table(self, seq: Seq) -> Ids:
        if seq.epoch in self._kept:
            return tuple([] for _ in self._managers)
        return tuple(
            [block.block_id for block in manager.req_to_blocks.get(seq.id, ())] for manager in self._managers
        )

    def drop(self, seq: Seq) -> None:
        self.manager.free(seq.payload)
        seq.cached_blocks = 0

    def trim(self, seq: Seq, counts: tuple[int, ...]) -> None:
        for manager, count in zip(self._managers, counts, strict=True):
            blocks = manager.req_to_blocks.get(seq.id, [])
            tail = blocks[len(blocks) - count :]
            del blocks[len(blocks) - count :]
            if manager.num_cached_block.get(seq.id, 0) > len(blocks):
                manager.num_cached_block[seq.id] = len(blocks)
            self._give_back(reversed(tail))

    def convert(self, seq: Seq, *, counted: bool = True) -> Hold:
        """The table of one that waits for a transfer keeps its name, for so does its id; that of one that is gone does not."""
        hold = Hold(self.table(seq), counted)
        name = seq.id if counted else self._name()
        self._names[hold] = name
        for manager in self._managers:
            manager.req_to_blocks[name] = manager.req_to_blocks.pop(seq.id, [])
            manager.num_cached_block.pop(seq.id, None)
        if counted:
            self._kept.add(seq.epoch)
        seq.cached_blocks = 0
        return hold

    def pin(self, seq: Seq, tokens: int) -> Hold:
        count = -(-tokens // self.block_size)
        table = self.table(seq)
        if not 0 < count <= max(map(len, table)):
            raise Refused("pin", f"{seq} has {max(map(len, table))} blocks, not {count}")
        hold = Hold(tuple(group[:count] for group in table), counted=False)
        name = self._names[hold] = self._name()
        kept = self.blocks(hold.blocks).blocks
        self._pool.touch(kept)
        for manager, blocks in zip(self._managers, kept, strict=True):
            manager.req_to_blocks[name] = list(blocks)
        return hold

    def let_go(self, hold: Hold) -> None:
        if not hold.live:
            raise Refused("let_go", "this hold was let go of before")
        hold.live = False
        name = self._names.pop(hold, None)
        if name is None:
            self._give_back(self.blocks(hold.blocks).blocks[0])
            return
        for manager in self._managers:
            self._give_back(reversed(manager.req_to_blocks.pop(name)))

    def evict(self, blocks: set[int]) -> None:
        for block in blocks:
            if not 0 <= block < self.size:
                raise Refused("evict", f"there is no block {block}, only 0 to {self.size - 1}")
        self.manager.evict_blocks(blocks)

    def reset(self) -> bool:
        done: bool = self.manager.reset_prefix_cache()
        return done

    def common_prefix(self, seq: Seq) -> list[int]:
        common: list[int] = self.manager.get_num_common_prefix_blocks(seq.id)
        return common

    def slide(self, seq: Seq) -> None:
        self._growing = seq
        try:
            self.manager.coordinator.remove_skipped_blocks(seq.id, seq.computed)
        finally:
            self._growing = None

    def take_events(self) -> list[Any]:
        events: list[Any] = self.manager.take_events()
        return events

    def _name(self) -> str:
        self._count += 1
        return f"hold {self._count}"

    def _freed(self, ordered_blocks: Iterable[Any]) -> None:
        """In place of the pool's `free_blocks`: what leaves a window under a step in flight waits for its answer."""
        seq = self._growing
        if seq is None or not seq.in_flight or self.later is None:
            self._give_back(ordered_blocks)
            return
        blocks = [block.block_id for block in ordered_blocks]
        if blocks:
            self.later(seq, Hold((blocks,), counted=False))
