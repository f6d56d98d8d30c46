"""One difference between a tree and what the project knows, or what a user's class expects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference; `breaks` says whether the specification, an adapter or the user's class no longer fits."""

    breaks: bool
    about: str
    text: str
