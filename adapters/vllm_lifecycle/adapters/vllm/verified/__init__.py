"""The verified scheduler inside vLLM: `VerifiedScheduler` and `VerifiedAsyncScheduler`, for the release that is installed.

Which adapter serves a release is decided by what the release has, not by its number, and only when a class is asked for:
importing this package needs no vLLM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.verified.v013 import VerifiedAsyncScheduler, VerifiedScheduler

__all__ = ["VerifiedAsyncScheduler", "VerifiedScheduler"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    interface = import_module("vllm.v1.core.sched.interface")
    adapter = "v032" if hasattr(interface, "PauseState") else "v013"
    return getattr(import_module(f"{__name__}.{adapter}"), name)
