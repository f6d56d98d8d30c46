"""Scheduler classes that show what the comparison can see: two that change nothing, one that is wrong."""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler


class Plain(Scheduler):  # type: ignore[misc]
    """vLLM's scheduler under another name."""


class PlainAsync(AsyncScheduler):  # type: ignore[misc]
    """The same for async scheduling."""


class Crossed(Scheduler):  # type: ignore[misc]
    """Gives the worker the last two new requests' blocks the wrong way round, now and then: one KV cache is the other's."""

    def schedule(self, *arguments: Any) -> Any:
        output = super().schedule(*arguments)
        if len(output.scheduled_new_reqs) >= 2:
            one, other = output.scheduled_new_reqs[-2:]
            if len(one.block_ids[0]) == len(other.block_ids[0]) and not one.num_computed_tokens:
                one.block_ids, other.block_ids = (other.block_ids[0],), (other.block_ids[0],)
        return output
