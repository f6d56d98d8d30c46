"""vLLM's own scheduler with one small change each: the harness has to tell them apart from the original."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class ForgetsFinished(Scheduler):  # type: ignore[misc]
    """Does not tell the workers which requests have finished."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        output.finished_req_ids = set()
        return output


class AdmitsBackwards(Scheduler):  # type: ignore[misc]
    """Announces new requests in the reverse order."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        output.scheduled_new_reqs.reverse()
        return output


class ReversesTokens(Scheduler):  # type: ignore[misc]
    """Lists the tokens of a step in another order."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)
        output.num_scheduled_tokens = dict(reversed(output.num_scheduled_tokens.items()))
        return output


class LeaksOnAbort(Scheduler):  # type: ignore[misc]
    """Keeps the blocks of an aborted request that was preempted or runs."""

    def _free_blocks(self, request: Any) -> None:
        if request.status.name == "FINISHED_ABORTED":
            del self.requests[request.request_id]
        else:
            super()._free_blocks(request)


class PreemptsTheFirst(Scheduler):  # type: ignore[misc]
    """A preempted request goes to the tail of the queue."""

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        self.waiting.remove_request(request)
        self.waiting.add_request(request)


class ChangesAStepInFlight(Scheduler):  # type: ignore[misc]
    """Keeps writing to the output of the step before."""

    before: Any = None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            self.before.num_scheduled_tokens["r0"] = 1
        self.before = super().schedule(*args, **kwargs)
        return self.before


class Raises(Scheduler):  # type: ignore[misc]
    """Fails at the first abort of a request that waits."""

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        for rid in [request_ids] if isinstance(request_ids, str) else list(request_ids):
            if rid in self.requests and self.requests[rid].status.name == "WAITING":
                raise KeyError(rid)
        return super().finish_requests(request_ids, finished_status)


MUTANTS: dict[type[Any], str] = {
    ForgetsFinished: "mixed",
    AdmitsBackwards: "mixed",
    ReversesTokens: "chunking",
    LeaksOnAbort: "aborts",
    PreemptsTheFirst: "preemption",
    ChangesAStepInFlight: "pipeline",
    Raises: "aborts",
}
"""Each mutant, and a group that has to find it."""
