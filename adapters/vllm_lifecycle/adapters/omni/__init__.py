"""vllm-omni: what it adds to the explorer, and the verified scheduler that runs inside it (`VerifiedOmniARScheduler`).

The explorer's part, hand-offs to a next stage and input in chunks from a former one, is recognised by the target's class (see
`vllm.extension`). Importing this package needs neither vLLM nor vllm-omni; asking for the scheduler does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.omni.verified.scheduler import VerifiedOmniARScheduler

__all__ = ["VerifiedOmniARScheduler"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.verified.scheduler"), name)
