"""What judging yields: a claim that does not hold, on what, and how it shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A claim of the specification that fell.  `kind` tells different mechanisms of one claim apart."""

    claim: str
    subject: str
    message: str
    kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Equal for the same violation in two states."""
        return self.claim, self.subject
