"""Builds the parts of a scheduler from vLLM's configuration: connectors, block store with its view, policy, encoder cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole

from vllm_lifecycle.adapters.vllm.verified.cacheview import Blocks, KVCacheView
from vllm_lifecycle.adapters.vllm.verified.encoder import Cache, CrossCache, Encoders
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.spec.lifecycles.vocabulary import Status, Transfer
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq

now = time.time


def publishes(config: Any) -> bool:
    """KV cache events are asked for."""
    return config.kv_events_config is not None and bool(config.kv_events_config.enable_kv_cache_events)


def connector(config: Any, cache: Any) -> Any:
    """The scheduler's side of the configured KV connector; None without one."""
    if config.kv_transfer_config is None:
        return None
    return KVConnectorFactory.create_connector(
        config=config, role=KVConnectorRole.SCHEDULER, kv_cache_config=cache
    )


def encoder_connector(config: Any) -> Any:
    """The scheduler's side of the configured encoder-cache connector; None without one."""
    if config.ec_transfer_config is None:
        return None
    return ECConnectorFactory.create_connector(config=config, role=ECConnectorRole.SCHEDULER)


class Store(NamedTuple):
    """A block store, and what goes with it.

    view    makes vLLM's view of it, given the records by id
    blocks  makes vLLM's `KVCacheBlocks` of block ids
    least   blocks without which so many tokens cannot be held
    """

    store: Any
    view: Callable[[Callable[[], dict[str, Seq]]], Any]
    blocks: Callable[[tuple[list[int], ...]], Any]
    least: Callable[[int], int]


def store(scheduler: Any, stats: Stats) -> Store:
    """Our own store for full attention, else vLLM's manager as the store."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    caching = bool(scheduler.cache_config.enable_prefix_caching)
    listener = scheduler.EVENTS(scheduler.block_size) if scheduler.enable_kv_cache_events else None
    collector = scheduler.kv_metrics_collector
    watch = scheduler.WATCH(stats, collector) if stats.on or collector is not None else None
    if scheduler.own_store():
        size = groups[0].kv_cache_spec.block_size * scheduler.dcp_world_size * scheduler.pcp_world_size
        own = PagedStore(
            scheduler.kv_cache_config.num_blocks,
            size,
            scheduler.max_model_len,
            scheduler.STORE_RULES,
            caching=caching,
            eagle=scheduler.use_eagle,
            listener=listener,
            watch=watch,
        )
        return Store(
            own,
            lambda seqs: KVCacheView(own, seqs, scheduler.kv_cache_config, stats, collector),
            partial(Blocks, own),
            lambda tokens: -(-tokens // size),
        )
    theirs = scheduler.make_hybrid(watch)
    return Store(theirs, lambda seqs: theirs.manager, theirs.blocks, theirs.least)


def encoders(scheduler: Any, size: int, remote: Any, touches: Callable[[int], bool]) -> Encoders:
    """What plans with the encoder cache manager."""
    cross = scheduler.is_encoder_decoder
    manager = CrossCache(cache_size=size) if cross else Cache(cache_size=size)
    encoders: Encoders = scheduler.ENCODERS(
        manager,
        cross=cross,
        whole=bool(scheduler.scheduler_config.disable_chunked_mm_input),
        shift=1 if scheduler.use_eagle else 0,
        remote=None if remote is None else partial(_has, scheduler),
        touches=touches,
    )
    return encoders


def _has(scheduler: Any, request: Any) -> list[bool]:
    """Which of a request's encoder inputs the encoder-cache connector has."""
    there: list[bool] = scheduler.ec_connector.has_caches(request)
    return there


def loaded(kernel: Kernel) -> set[str]:
    """Loading requests whose load is done."""
    return {
        seq.id
        for seq in kernel.seqs.values()
        if seq.receive is not None and seq.receive.state is not Transfer.ACTIVE
    }


def failed(kernel: Kernel) -> set[str]:
    """Loading requests whose load failed, wholly or in part."""
    return {
        seq.id
        for seq in kernel.seqs.values()
        if seq.receive is not None
        and seq.receive.valid is not None
        and seq.status is Status.WAITING_FOR_REMOTE_KVS
    }
