"""Every setting that vLLM's own scheduler reads is read by the verified one too, or refused, or listed here with the reason.

The settings are found in the sources: attributes of configuration objects, by the names under which vLLM's scheduler has them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from vllm_lifecycle.adapters.vllm import verified

pytestmark = pytest.mark.vllm
THEIRS = ("vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler")
CONFIGURATIONS = frozenset(
    {
        *(
            "vllm_config",
            "model_config",
            "scheduler_config",
            "cache_config",
            "kv_cache_config",
            "kv_cache_spec",
        ),
        *("lora_config", "parallel_config", "observability_config", "speculative_config", "spec"),
        *("kv_events_config", "kv_transfer_config", "ec_transfer_config", "ec_manager_config"),
        *("attention_config", "aux_output_config"),
    }
)
"""Names under which vLLM's scheduler has a configuration, as a variable or as an attribute."""
ELSEWHERE = {
    "is_kv_consumer": "blocks always wait for the steps in flight that touch them, not only for connectors that load",
    "max_concurrent_batches": "the same: what is in flight is known step by step, not guessed from the configuration",
    "get_encoder_cache_manager_obj": "refused by the name of the class: see limits032.CONFIG",
    "is_kv_producer": "read for partial blocks of Mamba layers only, which are refused: see limits032.CACHE",
    "mamba_cache_mode": "Mamba layers are refused: see limits032.CACHE",
    "prefill_checkpoint_alignment": "Mamba layers are refused: see limits032.CACHE",
    "num_prefill_checkpoint_blocks": "Mamba layers are refused: see limits032.CACHE",
}
"""Settings that need not be read, and why."""


def _leaf_reads(tree: ast.AST, roots: frozenset[str]) -> Iterator[str]:
    """Attributes that are read of something with one of the names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if name in roots:
                yield node.attr


def read_by_vllm() -> set[str]:
    """Settings that vLLM's scheduler reads."""
    trees = (ast.parse(inspect.getsource(import_module(name))) for name in THEIRS)
    return {leaf for tree in trees for leaf in _leaf_reads(tree, CONFIGURATIONS)}


def read_by_ours() -> set[str]:
    """Attributes that the verified scheduler reads, in its code or by a dotted path of a limit."""
    found: set[str] = set()
    for path in Path(inspect.getfile(verified)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(node.value.split("."))
    return found


def test_every_setting_that_vllm_reads_is_read_refused_or_listed() -> None:
    assert read_by_vllm() - read_by_ours() - CONFIGURATIONS - set(ELSEWHERE) == set()


def test_the_reading_finds_settings() -> None:
    assert {"max_num_seqs", "long_prefill_token_threshold", "kv_load_failure_policy"} <= read_by_vllm()
    assert "no_such_setting" not in read_by_ours()
