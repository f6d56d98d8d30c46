"""What the model configuration asks of hand-offs: whether there are any, what triggers one, and how the worker tells of its end.

`omni_kv_config` is a dictionary or an object, as vllm-omni has it. Three entries are of our own:

acknowledgement   "in step" (default): the worker copies within the step that ships, as vllm-omni 0.16.0's does, so that the
                  answer to a step without tokens, which cannot carry an acknowledgement there, stands for it;
                  "reported": it copies in the background, and only its report ends a hand-off
transfer_timeout  seconds after which a hand-off of a finished request is given up; 0 (default): never
chunk_timeout     seconds after which a request ends with an error that waits for one chunk of a former stage; 0 (default): never
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from vllm_lifecycle.adapters.vllm.verified.limits import Unsupported

IN_STEP, REPORTED = "in step", "reported"
PREFILL, TOKEN = "prefill_finished", "special_token"


@dataclass(frozen=True)
class Handing:
    """Hand-offs of one deployment; `trigger` is "" when requests are handed on at their end only."""

    sends: bool = False
    trigger: str = ""
    token: int | None = None
    in_step: bool = True
    timeout: float = 0.0


def _get(settings: Any, name: str, default: Any) -> Any:
    if isinstance(settings, dict):
        return settings.get(name, default)
    return getattr(settings, name, default)


def _seconds(settings: Any, name: str) -> float:
    """A deadline; raises Unsupported for what is none."""
    told = _get(settings, name, 0) or 0
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told < inf:
        raise Unsupported(f"omni_kv_config has the {name} {told!r}: use seconds, or 0 for no deadline")
    return float(told)


def chunk_timeout(model_config: Any) -> float:
    """Seconds that a request waits for one chunk, 0 for no bound; raises Unsupported for what is no number of seconds."""
    return _seconds(getattr(model_config, "omni_kv_config", None) or {}, "chunk_timeout")


def handing(model_config: Any) -> Handing:
    """Read from a `ModelConfig`; raises Unsupported for words that nobody knows."""
    settings = getattr(model_config, "omni_kv_config", None)
    if not settings or not _get(settings, "need_send_cache", False):
        return Handing()
    criteria = _get(settings, "kv_transfer_criteria", None) or {}
    trigger, told = criteria.get("type", ""), _get(settings, "acknowledgement", IN_STEP)
    if trigger not in ("", PREFILL, TOKEN):
        raise Unsupported(
            f"kv_transfer_criteria has the type {trigger!r}: use {PREFILL} or {TOKEN}, or leave it out"
        )
    if told not in (IN_STEP, REPORTED):
        raise Unsupported(f"omni_kv_config has the acknowledgement {told!r}: use {IN_STEP!r} or {REPORTED!r}")
    return Handing(
        True,
        trigger,
        criteria.get("token_id"),
        told == IN_STEP,
        _seconds(settings, "transfer_timeout"),
    )
