"""The explorer of real vLLM scheduler classes (layer L4).

A scheduler class is built on CPU, the environment is played through its public API, its state is read through one
correspondence table, and properties are judged against the driver's own truth.  Importing this package needs no vLLM;
modules that do need it import it when they are used.

What the package itself offers is what a saved test is written with: the events, `Scope`, `Match` and `replay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import (
    Abort,
    Add,
    Answer,
    Close,
    Continue,
    Decide,
    Event,
    Grammar,
    Pause,
    Report,
    Reset,
    Resume,
    Schedule,
)
from .scope import Match, Scope

if TYPE_CHECKING:
    from .rerun import Replay

__all__ = [
    "Abort",
    "Add",
    "Answer",
    "Close",
    "Continue",
    "Decide",
    "Event",
    "Grammar",
    "Match",
    "Pause",
    "Report",
    "Reset",
    "Resume",
    "Schedule",
    "Scope",
    "replay",
]


def replay(target: str, scope: Scope, events: tuple[Event, ...], claim: str) -> Replay:
    """Play a sequence of events on a scheduler class of the installed vLLM and judge one property.

    `target` is `pkg.mod:Class`.  Raises config.Unusable or correspondence.MissingSeam, one line each, when it cannot be
    played here.
    """
    from .rerun import rerun
    from .saved import Saved

    return rerun(Saved(claim, target, scope, events))
