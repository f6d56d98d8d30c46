"""What is refused on vLLM 0.32.0: features beyond the rows this scheduler matches, each with what to do instead.

Rule: whatever the configuration can ask for and this scheduler does not do is named here, or for a single request in `REQUEST`;
nothing is left to be silently wrong.  Cited: v1/core/sched/scheduler.py of 0.32.0, where each feature changes a decision.
"""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.adapters.vllm.verified.limits import COMMON, Limit, on

OWN = "leave out --scheduler-cls: vLLM's own scheduler does it"
STAGES_AHEAD = "asynchronous scheduling over several pipeline stages"
NOT_AHEAD = "add --no-async-scheduling, or leave out --scheduler-cls"


def _more_than(path: str, most: int) -> Any:
    """The number at a dotted path is there and larger."""

    def asked(config: Any) -> bool:
        for name in path.split("."):
            config = getattr(config, name, None)
        return isinstance(config, int) and config > most

    return asked


def _stages_ahead(config: Any) -> bool:
    return bool(
        config.parallel_config.pipeline_parallel_size > 1 and config.scheduler_config.async_scheduling
    )


def _replays(config: Any) -> bool:
    return any(getattr(g.kv_cache_spec, "prefix_replay_tokens", 0) for g in config.kv_cache_groups)


CONFIG = (
    *COMMON,
    Limit("a server that only runs the encoder (mm_encoder_only)", on("is_mm_encoder_only"), OWN),
    Limit("diffusion models", on("model_config.is_diffusion"), OWN),
    Limit(
        "a number of drafts that depends on the batch size",
        on("speculative_config.num_speculative_tokens_per_batch_size"),
        "leave num_speculative_tokens_per_batch_size out of --speculative-config",
    ),
    Limit(
        "drafting models of several MTP modules",
        _more_than("num_prefill_lookahead_tokens", 1),
        "set num_speculative_tokens to 1, or leave out --scheduler-cls",
    ),
    Limit("outputs beside the tokens (routed experts)", on("aux_output_config.enabled"), OWN),
    Limit("HiSparse attention", on("attention_config.hisparse_config"), OWN),
    Limit(
        "an encoder cache manager of one's own",
        on("ec_manager_config.encoder_cache_manager_cls"),
        "leave encoder_cache_manager_cls out of --ec-manager-config, or leave out --scheduler-cls",
    ),
    Limit(
        "prefills that keep step with other data-parallel ranks",
        _more_than("scheduler_config.prefill_schedule_interval", 1),
        "leave prefill_schedule_interval at 1",
    ),
    Limit(STAGES_AHEAD, _stages_ahead, NOT_AHEAD),
    Limit(
        "decode context parallelism",
        _more_than("parallel_config.decode_context_parallel_size", 1),
        "leave decode_context_parallel_size at 1",
    ),
)
"""Limits that a `VllmConfig` runs into."""

AHEAD = (
    *CONFIG,
    Limit(STAGES_AHEAD, _more_than("parallel_config.pipeline_parallel_size", 1), NOT_AHEAD),
)
"""Limits of a scheduler that always plans ahead, whatever the configuration says of it."""

CACHE = (
    Limit("Mamba layers", on("has_mamba_layers"), OWN),
    Limit("sliding windows that are computed again after a hit (prefix replay)", _replays, OWN),
)
"""Limits that a `KVCacheConfig` runs into."""

REQUEST = (Limit("streaming input sessions", on("resumable"), "send the whole prompt in one request"),)
"""Limits that a single request runs into: it is answered with an error, the others go on."""
