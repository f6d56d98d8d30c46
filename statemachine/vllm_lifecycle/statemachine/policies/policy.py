"""What a policy is: data and two choices. It cannot break safety, for the kernel refuses what is not enabled.

To write one: derive from `Policy`, give it a name, and say how waiting requests are ordered (`ordered`, `key`) and who is
preempted when a running request needs blocks (`victim`). `victim` may name the requester itself: then it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_lifecycle.statemachine.kernel.queue import ArrivalQueue, KeyQueue, Queue
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Policy:
    """First come, first served: waiting requests in order of arrival, the newest running one is preempted first."""

    name = "fcfs"
    ordered = False
    """Waiting requests are ordered by `key`; else by arrival, and who was preempted comes first."""

    def key(self, seq: Seq) -> Any:
        """What waiting requests are ordered by, the smallest first; read once, when a request joins the queue."""
        return seq.epoch

    def queue(self) -> Queue:
        """An empty waiting queue in this policy's order."""
        return KeyQueue(self.key) if self.ordered else ArrivalQueue()

    def victim(self, running: Sequence[Seq], requester: Seq) -> Seq:
        """The running request that gives way so that `requester` can go on."""
        return running[-1]
