"""vLLM's view of the block store: what its code, tests and connectors read from `kv_cache_manager`.

Everything is computed from the store when it is read; nothing is kept here.  Blocks are given as objects that look like vLLM's
`KVCacheBlock` and ask the store for their count and hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Block:
    """One block, as `KVCacheBlock` shows it."""

    __slots__ = ("_store", "block_id")

    def __init__(self, store: PagedStore, block_id: int) -> None:
        self._store, self.block_id = store, block_id

    @property
    def ref_cnt(self) -> int:
        return self._store.pool.refs[self.block_id]

    @property
    def is_null(self) -> bool:
        return self.block_id == 0

    @property
    def block_hash(self) -> Any:
        key = self._store.prefixes.keys[self.block_id]
        return None if key is None else make_block_hash_with_group_id(key, 0)

    _block_hash = block_hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.block_id == self.block_id

    def __hash__(self) -> int:
        return self.block_id

    def __repr__(self) -> str:
        return f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt})"


def kept(store: PagedStore, seq: Seq) -> tuple[list[int], ...]:
    """The blocks of a request: its table, or, when it has ended, what a transfer of it still holds."""
    if seq.reason is not None:
        for transfer in (seq.receive, seq.send, seq.handoff):
            if transfer is not None and transfer.hold is not None:
                return transfer.hold.blocks
    return store.table(seq)


class Blocks(KVCacheBlocks):  # type: ignore[misc]
    """A table as `KVCacheBlocks`; block objects are made only when they are asked for."""

    def __init__(self, store: PagedStore, ids: tuple[list[int], ...]) -> None:
        self._store, self._ids = store, ids

    @property
    def blocks(self) -> tuple[list[Block], ...]:
        return tuple([Block(self._store, i) for i in group] for group in self._ids)

    def get_block_ids(self, allow_none: bool = False) -> tuple[list[int], ...] | None:
        if allow_none and not any(self._ids):
            return None
        return tuple(list(group) for group in self._ids)

    def get_unhashed_block_ids(self) -> list[int]:
        keys = self._store.prefixes.keys
        return [i for i in self._ids[0] if keys[i] is None]

    def new_empty(self) -> Blocks:
        return Blocks(self._store, tuple([] for _ in self._ids))

    def __add__(self, other: Any) -> Blocks:
        theirs = other.get_block_ids()
        return Blocks(self._store, tuple([*a, *b] for a, b in zip(self._ids, theirs, strict=True)))


class BlockList(Sequence[Any]):
    """All blocks, by number."""

    def __init__(self, store: PagedStore) -> None:
        self._store = store

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [Block(self._store, i) for i in range(*index.indices(len(self)))]
        return Block(self._store, range(len(self))[index])

    def __len__(self) -> int:
        return self._store.pool.size


class FreeQueue:
    """The free blocks, next to be handed out first."""

    def __init__(self, store: PagedStore) -> None:
        self._store = store

    @property
    def num_free_blocks(self) -> int:
        return self._store.free

    def get_all_free_blocks(self) -> list[Block]:
        return [Block(self._store, i) for i in self._store.pool.queue]


class Cached(Mapping[Any, Any]):
    """Hash with group number -> the block, or the blocks by number when there are several."""

    def __init__(self, store: PagedStore) -> None:
        self._store = store

    @property
    def _cache(self) -> Cached:
        return self

    def get_one_block(self, key: Any) -> Block | None:
        found = self._store.prefixes.first.get(key[:-4])
        return None if found is None else Block(self._store, found)

    def __getitem__(self, key: Any) -> Any:
        prefixes = self._store.prefixes
        copies = prefixes.copies.get(key[:-4])
        if copies:
            return {i: Block(self._store, i) for i in copies}
        return Block(self._store, prefixes.first[key[:-4]])

    def __iter__(self) -> Iterator[Any]:
        return (make_block_hash_with_group_id(key, 0) for key in self._store.prefixes.first)

    def __len__(self) -> int:
        return len(self._store.prefixes.first)


class BlockPool:
    """vLLM's block pool, as the store has it."""

    def __init__(self, store: PagedStore) -> None:
        self._store = store
        self.blocks = BlockList(store)
        self.free_block_queue = FreeQueue(store)
        self.cached_block_hash_to_block = Cached(store)
        self.null_block = Block(store, 0)
        self.enable_caching = store.caching
        self.num_gpu_blocks = store.pool.size

    def get_num_free_blocks(self) -> int:
        return self._store.free

    def get_usage(self) -> float:
        return self._store.usage

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> list[Block] | None:
        found = self._store.prefixes.first.get(block_hash)
        return None if found is None else [Block(self._store, found)]


class Tables(Mapping[str, Any]):
    """Id -> something of its table, for requests that have one."""

    def __init__(self, seqs: Callable[[], dict[str, Seq]], show: Callable[[Seq], Any]) -> None:
        self._seqs, self._show = seqs, show

    def __getitem__(self, rid: str) -> Any:
        return self._show(self._with_table()[rid])

    def __iter__(self) -> Iterator[str]:
        return iter(self._with_table())

    def __len__(self) -> int:
        return len(self._with_table())

    def _with_table(self) -> dict[str, Seq]:
        return {rid: seq for rid, seq in self._seqs().items() if seq.table or seq.reason is not None}


class Manager:
    """vLLM's manager of one group of layers."""

    def __init__(self, view: KVCacheView, spec: Any) -> None:
        store = view.store
        self.block_pool = view.block_pool
        self.block_size = store.block_size
        self.kv_cache_spec = spec
        self.req_to_blocks = Tables(view.seqs, lambda seq: [Block(store, i) for i in kept(store, seq)[0]])
        self.num_cached_block = Tables(view.seqs, lambda seq: seq.cached_blocks)


class Coordinator:
    """vLLM's coordinator of the groups: there is one."""

    def __init__(self, view: KVCacheView) -> None:
        groups = view.kv_cache_config.kv_cache_groups
        self.block_pool = view.block_pool
        self.kv_cache_config = view.kv_cache_config
        self.single_type_managers = tuple(Manager(view, group.kv_cache_spec) for group in groups)


class KVCacheView:
    """vLLM's `KVCacheManager`, read only but for the resets that it offers."""

    def __init__(
        self,
        store: PagedStore,
        seqs: Callable[[], dict[str, Seq]],
        kv_cache_config: Any,
        stats: Stats,
        collector: Any = None,
    ) -> None:
        self.store = store
        self.seqs = seqs
        self.kv_cache_config = kv_cache_config
        self.num_kv_cache_groups = len(kv_cache_config.kv_cache_groups)
        self.max_model_len = store.longest
        self.enable_caching = store.caching
        self.use_eagle = store.eagle
        self.log_stats = stats.on
        self.metrics_collector = collector
        self.block_pool = BlockPool(store)
        self.coordinator = Coordinator(self)
        self.empty_kv_cache_blocks = self.blocks(tuple([] for _ in range(self.num_kv_cache_groups)))
        self._stats = stats

    def blocks(self, ids: tuple[list[int], ...]) -> Blocks:
        """Block ids as vLLM's `KVCacheBlocks`."""
        return Blocks(self.store, ids)

    @property
    def usage(self) -> float:
        return self.store.usage

    @property
    def prefix_cache_stats(self) -> Any:
        return self._stats.prefix

    def make_prefix_cache_stats(self) -> Any:
        return self._stats.take_prefix()

    def get_computed_blocks(self, request: Any) -> tuple[Blocks, int]:
        hit = self.store.lookup(request._seq)
        return self.blocks(hit.blocks), hit.tokens

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return self.store.common_prefix(self.seqs()[running_request_id])

    def get_blocks(self, request_id: str) -> Blocks:
        seq = self.seqs().get(request_id)
        return self.empty_kv_cache_blocks if seq is None else self.blocks(kept(self.store, seq))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        ids: tuple[list[int], ...] = self.get_blocks(request_id).get_block_ids()  # type: ignore[assignment]
        return ids

    def create_kv_cache_blocks(self, blocks: Any) -> Any:
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def take_events(self) -> list[Any]:
        return self.store.take_events()

    def reset_prefix_cache(self) -> bool:
        return self.store.reset()

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        self.store.cache(request._seq, num_computed_tokens)

    def evict_blocks(self, block_ids: set[int]) -> None:
        self.store.evict(block_ids)
