"""Rows of the corpus: what each subject did in public reports, and how a finding on it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .recognise import Recogniser

Cell = Literal["misbehaves", "policy", "healthy", "absent", "read"]
"""What is known: it misbehaves when run, a question of policy, healthy, the feature is absent, or only read in the source."""


@dataclass(frozen=True)
class Row:
    """One known defect."""

    name: str
    title: str
    cells: Mapping[str, Cell]
    """Per subject."""
    recognise: Recogniser | None = None
    why_not: str = ""
    """Why an exploration does not find it, when it does not."""
