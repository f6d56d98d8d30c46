"""Every feature that is refused on 0.32.0 is refused in one line that names it and says what to do instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_lifecycle.adapters.vllm.verified.limits import Limit, Unsupported, check
from vllm_lifecycle.adapters.vllm.verified.limits032 import CACHE, CONFIG, REQUEST


def config(**changes: Any) -> Any:
    """A configuration that nothing is wrong with, and with dotted paths changed."""
    spec = SimpleNamespace(prefix_replay_tokens=0)
    made = SimpleNamespace(
        is_mm_encoder_only=False,
        num_prefill_lookahead_tokens=0,
        kv_transfer_config=None,
        speculative_config=None,
        model_config=SimpleNamespace(is_diffusion=False, is_encoder_decoder=False),
        aux_output_config=SimpleNamespace(enabled=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1, decode_context_parallel_size=1),
        scheduler_config=SimpleNamespace(policy="fcfs", async_scheduling=True, prefill_schedule_interval=1),
        has_mamba_layers=False,
        kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)],
        resumable=False,
    )
    for path, value in changes.items():
        *parents, name = path.split("__")
        there = made
        for parent in parents:
            there = getattr(there, parent)
        setattr(there, name, value)
    return made


ASKED: dict[str, tuple[tuple[Limit, ...], dict[str, Any]]] = {
    "an encoder-decoder model": (
        CONFIG,
        {"model_config__is_encoder_decoder": True, "kv_transfer_config": SimpleNamespace()},
    ),
    "this scheduling policy": (CONFIG, {"scheduler_config__policy": "longest"}),
    "mm_encoder_only": (CONFIG, {"is_mm_encoder_only": True}),
    "diffusion": (CONFIG, {"model_config__is_diffusion": True}),
    "batch size": (
        CONFIG,
        {"speculative_config": SimpleNamespace(num_speculative_tokens_per_batch_size=[(1, 8, 3)])},
    ),
    "MTP modules": (CONFIG, {"num_prefill_lookahead_tokens": 3}),
    "routed experts": (CONFIG, {"aux_output_config__enabled": True}),
    "HiSparse": (CONFIG, {"attention_config__hisparse_config": SimpleNamespace()}),
    "encoder cache manager": (
        CONFIG,
        {"ec_manager_config": SimpleNamespace(encoder_cache_manager_cls="a.B")},
    ),
    "data-parallel ranks": (CONFIG, {"scheduler_config__prefill_schedule_interval": 4}),
    "pipeline stages": (CONFIG, {"parallel_config__pipeline_parallel_size": 2}),
    "decode context parallelism": (CONFIG, {"parallel_config__decode_context_parallel_size": 2}),
    "Mamba": (CACHE, {"has_mamba_layers": True}),
    "prefix replay": (
        CACHE,
        {"kv_cache_groups": [SimpleNamespace(kv_cache_spec=SimpleNamespace(prefix_replay_tokens=128))]},
    ),
    "streaming": (REQUEST, {"resumable": True}),
}


@pytest.mark.parametrize(("limits", "changes"), ASKED.values(), ids=list(ASKED))
def test_the_feature_is_refused_in_one_line(limits: tuple[Limit, ...], changes: dict[str, Any]) -> None:
    with pytest.raises(Unsupported) as refusal:
        check(config(**changes), limits)
    (line,) = str(refusal.value).splitlines()
    feature, _, instead = line.partition(": ")
    assert feature.startswith("VerifiedScheduler does not support ")
    assert instead


@pytest.mark.parametrize(("feature", "asked"), ASKED.items(), ids=list(ASKED))
def test_the_line_names_the_feature(feature: str, asked: tuple[tuple[Limit, ...], dict[str, Any]]) -> None:
    limits, changes = asked
    (limit,) = (limit for limit in limits if limit.asked(config(**changes)))
    assert feature in limit.feature


def test_each_limit_is_tried() -> None:
    tried = {
        limit for limits, changes in ASKED.values() for limit in limits if limit.asked(config(**changes))
    }
    assert tried == {*CONFIG, *CACHE, *REQUEST}


def test_an_ordinary_configuration_runs_into_none() -> None:
    for limits in (CONFIG, CACHE, REQUEST):
        check(config(), limits)
