"""Broken contracts: who broke which one how often, and one line in the log for the first of each kind.

A scheduler that meets an impossible signal goes on, but says so: the counts are what an operator reads when a connector or worker
misbehaves.
"""

from __future__ import annotations

from collections import Counter

from vllm.logger import init_logger

from vllm_lifecycle.spec.lifecycles.vocabulary import Party
from vllm_lifecycle.statemachine.kernel.refusal import Refused

logger = init_logger(__name__)


class Breaches:
    """Counts by party (None: unknown) and kind."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Party | None, str]] = Counter()

    def count(self, party: Party | None, kind: str, what: str) -> None:
        """A party did what its contract forbids; the first of a kind is logged."""
        key = (party, kind)
        self.counts[key] += 1
        if self.counts[key] == 1:
            who = party.name.lower() if party is not None else "somebody"
            logger.warning(
                "The %s broke its contract (%s): %s. The scheduler goes on; more of this kind are only counted.",
                who,
                kind,
                what,
            )

    def refused(self, refusal: Refused) -> None:
        """The kernel refused a signal."""
        self.count(refusal.party, refusal.action, refusal.reason)

    def failed(self, hook: str, rid: str, party: Party | None, error: Exception) -> None:
        """A hook of a third party raised; only its request ends."""
        key = (party, hook)
        self.counts[key] += 1
        if self.counts[key] == 1:
            logger.exception("%s failed for request %s, which ends with an error", hook, rid, exc_info=error)
