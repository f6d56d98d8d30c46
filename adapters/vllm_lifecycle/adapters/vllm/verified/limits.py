"""What is refused when the scheduler is built: one line that names the feature and the alternative, never silently wrong.

A limit is data: what is asked for, how to see it in the configuration, and what to do instead.  Features that the store of our
own does not have, but vLLM's `KVCacheManager` has, are no limits: that manager serves as the store then (see hybrid.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


class Unsupported(ValueError):
    """The configuration asks for what this scheduler does not do; the message names the alternative."""


@dataclass(frozen=True)
class Limit:
    """A feature that is refused: its name, whether a configuration asks for it, and what to do instead."""

    feature: str
    asked: Callable[[Any], bool]
    instead: str


def check(config: Any, limits: Iterable[Limit]) -> None:
    """Raises Unsupported for the first limit that a `VllmConfig` runs into."""
    for limit in limits:
        if limit.asked(config):
            raise Unsupported(f"VerifiedScheduler does not support {limit.feature}: {limit.instead}")


def _setting(path: str) -> Callable[[Any], Any]:
    """Reads a dotted path; None where a part of it is missing."""

    def read(config: Any) -> Any:
        for name in path.split("."):
            config = getattr(config, name, None)
        return config

    return read


def on(path: str) -> Callable[[Any], bool]:
    """The setting is there and true."""
    read = _setting(path)
    return lambda config: bool(read(config))


def _encoder_with_connector(config: Any) -> bool:
    return bool(config.model_config.is_encoder_decoder) and config.kv_transfer_config is not None


COMMON = (
    Limit(
        "a KV connector for an encoder-decoder model",
        _encoder_with_connector,
        "leave out --kv-transfer-config; vLLM's own scheduler does not support it either",
    ),
    Limit(
        "this scheduling policy",
        lambda config: config.scheduler_config.policy not in ("fcfs", "priority"),
        "use --scheduling-policy fcfs or priority",
    ),
)
"""Limits on every release."""
