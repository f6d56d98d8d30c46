"""A policy of one's own: short prompts first. It may starve long ones; what it cannot do is break a property."""

from __future__ import annotations

from vllm_lifecycle.adapters.vllm import VerifiedScheduler
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.policies.policy import Policy


class ShortestPromptFirst(Policy):
    """The next to run is the one with the shortest prompt."""

    name = "shortest-prompt-first"
    ordered = True

    def key(self, seq: Seq) -> tuple[int, float, str]:
        """Prompt length first; then the earlier arrival."""
        return seq.prompt, seq.arrival, seq.id


class ShortestFirstScheduler(VerifiedScheduler):
    """The verified scheduler with this policy."""

    POLICY = ShortestPromptFirst
