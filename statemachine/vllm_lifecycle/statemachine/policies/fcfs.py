"""First come, first served."""

from __future__ import annotations

from vllm_lifecycle.statemachine.policies.policy import Policy


class FCFS(Policy):
    """Waiting requests in order of arrival; the newest running one gives way."""

    name = "fcfs"
