"""The explorer of real vLLM scheduler classes (layer L4).

A scheduler class is built on CPU, the environment is played through its public API, its state is read through one
correspondence table, and properties are judged against the driver's own truth.  Importing this package needs no vLLM;
modules that do need it import it when they are used.

What the package itself offers is what a saved test is written with: the events, `Scope`, `Match` and `replay`; and, where
vLLM is installed, `VerifiedScheduler` and `VerifiedAsyncScheduler`, schedulers of our own for `--scheduler-cls`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .events import (
    Abort,
    Acknowledge,
    Add,
    Answer,
    Chunk,
    Close,
    Continue,
    Decide,
    Event,
    Grammar,
    Pause,
    Refuse,
    Report,
    Reset,
    Resume,
    Schedule,
)
from .scope import Match, Scope

if TYPE_CHECKING:
    from .rerun import Replay
    from .verified import VerifiedAsyncScheduler, VerifiedScheduler

__all__ = [
    "Abort",
    "Acknowledge",
    "Add",
    "Answer",
    "Chunk",
    "Close",
    "Continue",
    "Decide",
    "Event",
    "Grammar",
    "Match",
    "Pause",
    "Refuse",
    "Report",
    "Reset",
    "Resume",
    "Schedule",
    "Scope",
    "VerifiedAsyncScheduler",
    "VerifiedScheduler",
    "replay",
]


def __getattr__(name: str) -> Any:
    """The verified scheduler classes, which need vLLM, are imported when they are asked for."""
    if name in ("VerifiedScheduler", "VerifiedAsyncScheduler"):
        return getattr(import_module(f"{__name__}.verified"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def replay(target: str, scope: Scope, events: tuple[Event, ...], claim: str) -> Replay:
    """Play a sequence of events on a scheduler class of the installed vLLM and judge one property.

    `target` is `pkg.mod:Class`.  Raises config.Unusable or correspondence.MissingSeam, one line each, when it cannot be
    played here.
    """
    from .rerun import rerun
    from .saved import Saved

    return rerun(Saved(claim, target, scope, events))
