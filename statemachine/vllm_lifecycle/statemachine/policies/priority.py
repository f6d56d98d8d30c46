"""Priority: the smaller number first, then the earlier arrival; the last by the same order gives way."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.policies.policy import Policy


def importance(seq: Seq) -> tuple[int, float]:
    """What is compared: priority, then arrival time."""
    return seq.priority, seq.arrival


class Priority(Policy):
    """Waiting requests and victims by (priority, arrival time)."""

    name = "priority"
    ordered = True

    def key(self, seq: Seq) -> tuple[int, float, str]:
        """Ties of time are broken by the id, so that the order does not depend on when a request was put back."""
        return seq.priority, seq.arrival, seq.id

    def victim(self, running: Sequence[Seq], requester: Seq) -> Seq:
        """The least important one that runs."""
        return max(running, key=importance)
