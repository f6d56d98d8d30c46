"""A scheduler class with the defect that all this is about, to show that the comparison sees it."""

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class Shared(Scheduler):  # type: ignore[misc]
    """Tells the worker that the last new request has the blocks of the one before it: they write over each other's KV."""

    def schedule(self, *arguments: Any) -> Any:
        output = super().schedule(*arguments)
        if len(output.scheduled_new_reqs) >= 2:
            one, other = output.scheduled_new_reqs[-2:]
            if len(one.block_ids[0]) >= len(other.block_ids[0]):
                other.block_ids = (one.block_ids[0][: len(other.block_ids[0])],)
        return output
