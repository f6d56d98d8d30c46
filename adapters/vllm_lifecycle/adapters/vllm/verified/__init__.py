"""The verified scheduler inside vLLM: `VerifiedScheduler` and `VerifiedAsyncScheduler`, for the release that is installed.

A release has an adapter or it is refused: between two releases the engine's interface and what it means change without a
failing import. Importing this package needs no vLLM; asking for a class does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.verified.v013 import VerifiedAsyncScheduler, VerifiedScheduler

__all__ = ["VerifiedAsyncScheduler", "VerifiedScheduler"]


ADAPTERS = {"0.13.0": "v013", "0.32.0": "v032"}
"""The module that serves each release of vLLM."""


def __getattr__(name: str) -> Any:
    """A scheduler class for the vLLM that is installed; ImportError, one line, where there is none for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    release = str(import_module("vllm").__version__).partition("+")[0]
    if release not in ADAPTERS:
        raise ImportError(
            f"{name} runs inside vLLM {' and '.join(ADAPTERS)}, and this is {release}: leave out --scheduler-cls, "
            "or install one of those"
        )
    return getattr(import_module(f"{__name__}.{ADAPTERS[release]}"), name)
