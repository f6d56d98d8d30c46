"""What an operation of the kernel raises when its guard does not hold; nothing was changed then."""

from __future__ import annotations

from vllm_lifecycle.spec.lifecycles.vocabulary import Party


class Refused(ValueError):
    """An operation that is not enabled: which one, why, and who asked for it (None: the scheduler itself)."""

    def __init__(self, action: str, reason: str, party: Party | None = None) -> None:
        super().__init__(f"{action}: {reason}")
        self.action = action
        self.reason = reason
        self.party = party
