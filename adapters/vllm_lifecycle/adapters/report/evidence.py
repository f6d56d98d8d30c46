"""A verdict with what can be shown of it: the custody picture, a test to copy, what stays the same from run to run.

Engines answer plain `Verdict`s; whoever has more to show answers a `Shown`, which every renderer takes as the verdict it is.
Rejected: objects in `Verdict.numbers` (they are for reports in plain data).
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_lifecycle.adapters.report.custody import Picture
from vllm_lifecycle.spec.check.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Shown(Verdict):
    """A verdict of a checker that watched the scheduler."""

    picture: Picture | None = None
    test: str = ""
    """The source of a pytest that fails as long as the property falls."""
    message: str = ""
    """How the property falls, in a sentence; `reason` says where and whose fault too."""
    known_as: tuple[str, ...] = ()
    """What the finding has in common with itself in other runs, on other machines and when lines move."""
