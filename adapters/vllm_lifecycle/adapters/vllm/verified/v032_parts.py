"""Parts of the scheduler on vLLM 0.32.0 that follow from the configuration: sizes, the manager of vLLM, links outwards."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorBase_V1
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

from vllm_lifecycle.adapters.vllm.verified.v032_encoder import Encoders032
from vllm_lifecycle.adapters.vllm.verified.v032_hybrid import HybridStore032
from vllm_lifecycle.adapters.vllm.verified.v032_world import Surroundings032
from vllm_lifecycle.statemachine.scheduling.rules import Limits


def wants_pool(transfer: Any) -> bool:
    """The configured connector works on vLLM's own block objects."""
    base, cls = KVConnectorBase_V1, KVConnectorFactory.get_connector_class(transfer)
    return (
        cls.bind_kv_cache_manager is not base.bind_kv_cache_manager
        or cls.bind_gpu_block_pool is not base.bind_gpu_block_pool
    )


def manager(scheduler: Any) -> KVCacheManager:
    """The KV cache manager of vLLM itscheduler."""
    cache = scheduler.cache_config
    return KVCacheManager(
        kv_cache_config=scheduler.kv_cache_config,
        max_model_len=scheduler.max_model_len,
        max_in_flight_tokens=scheduler.vllm_config.max_in_flight_tokens,
        enable_caching=cache.enable_prefix_caching,
        use_eagle=scheduler.use_eagle,
        num_prefill_lookahead=scheduler.num_prefill_lookahead,
        log_stats=scheduler.log_stats,
        enable_kv_cache_events=scheduler.enable_kv_cache_events,
        dcp_world_size=scheduler.dcp_world_size,
        pcp_world_size=1,
        scheduler_block_size=scheduler.block_size,
        hash_block_size=scheduler.hash_block_size,
        metrics_collector=scheduler.kv_metrics_collector,
        watermark=scheduler.scheduler_config.watermark,
        enable_mamba_shared_prefix_checkpoint=cache.enable_mamba_shared_prefix_checkpoint,
    )


def limits(scheduler: Any) -> Limits:
    """The sizes of this deployment."""
    config, speculative = scheduler.scheduler_config, scheduler.vllm_config.speculative_config
    extra = speculative.max_num_new_slots_for_drafting if speculative is not None else 0
    tokens, inputs = scheduler.max_num_scheduled_tokens, config.max_num_batched_tokens
    connector = scheduler._world.connector
    drafted = (
        1 + scheduler.num_spec_tokens + scheduler.num_lookahead_tokens if scheduler.num_spec_tokens else 0
    )
    groups = scheduler.kv_cache_config.kv_cache_groups
    return Limits(
        tokens=tokens,
        model_len=scheduler.max_model_len,
        inputs=inputs,
        extra=extra,
        sampled=scheduler.num_sampled_tokens_per_step,
        threshold=config.long_prefill_token_threshold,
        adaptive=config.long_prefill_token_threshold_adaptive,
        chunked=config.enable_chunked_prefill,
        lookahead=scheduler.num_lookahead_tokens,
        drafts=scheduler.num_spec_tokens,
        encoder=scheduler.max_num_encoder_input_tokens,
        shift=scheduler.num_prefill_lookahead,
        loras=scheduler.lora_config.max_loras if scheduler.lora_config else 0,
        cross=config.max_num_encoder_input_tokens if scheduler.is_encoder_decoder else 0,
        watermark=int(config.watermark * scheduler.kv_cache_config.num_blocks),
        headroom=sum(-(-drafted // group.kv_cache_spec.block_size) for group in groups),
        whole_fits=config.scheduler_reserve_full_isl,
        drops_output=connector is not None and bool(connector.requires_kv_delivery),
    )


def connect(world: Surroundings032, store: Any, view: Any, cache: Any) -> None:
    """The surroundings learn of the tables, and the connectors of the manager (or of our view that stands for it)."""
    if isinstance(store, HybridStore032):
        world.keyed = lambda seq: int(view.estimate_cached_tokens(seq.payload))
        world.cut = lambda seq, tokens: view.get_block_ids_for_computed_tokens(seq.id, tokens)
    else:
        size = store.block_size
        if store.listener is not None:
            store.listener.kind = get_kv_cache_spec_kind(cache.kv_cache_groups[0].kv_cache_spec).value
            if store.watch is not None:
                store.watch.events = store.listener
        world.keyed = lambda seq: seq.cached_blocks * size
        world.cut = lambda seq, tokens: (store.table(seq)[0][: -(-tokens // size)],)
    world.slide = store.slide
    if isinstance(world.encoders, Encoders032):
        world.encoders.has_item = world.has_item
        world.encoders.freed = world.encoder_let_go
    if world.connector is not None:
        world.connector.bind_kv_cache_manager(view)
