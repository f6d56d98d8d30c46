"""vLLM 0.13.0's own scheduler, its waiting queue mended (see mended.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from tests.differential.counted import Counted
from vllm.v1.core.sched.request_queue import RequestQueue, create_request_queue
from vllm.v1.request import RequestStatus


def holds_blocks(request: Any) -> bool:
    """A waiting request that loads, or has loaded."""
    return bool(request.num_computed_tokens) or request.status == RequestStatus.WAITING_FOR_REMOTE_KVS


class _TwoQueues(RequestQueue):  # type: ignore[misc]
    """Who holds blocks comes first; who is put back keeps its place among those put back."""

    def __init__(self, policy: Any, differs: Any) -> None:
        self.first, self.rest = create_request_queue(policy), create_request_queue(policy)
        self.seen: Any = None
        self.differs = differs

    def next(self) -> Any:
        while self.first and not holds_blocks(self.first.peek_request()):
            self.rest.prepend_request(self.first.pop_request())
        return self.first or self.rest

    def part(self, request: Any) -> Any:
        return self.first if holds_blocks(request) else self.rest

    def add_request(self, request: Any) -> None:
        self.part(request).add_request(request)

    def pop_request(self) -> Any:
        """The request that was looked at last: what it holds may have changed since."""
        request, self.seen = self.seen or self.next().peek_request(), None
        self.remove_request(request)
        return request

    def peek_request(self) -> Any:
        self.seen = self.next().peek_request()
        return self.seen

    def prepend_request(self, request: Any) -> None:
        self.part(request).prepend_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        back = list(requests)
        if len(back) > 1 or (self.rest and any(map(holds_blocks, back))):
            self.differs()
        for request in back:
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        (self.first if request in list(self.first) else self.rest).remove_request(request)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        for queue in (self.first, self.rest):
            queue.remove_requests(requests)

    def __bool__(self) -> bool:
        return bool(self.first or self.rest)

    def __len__(self) -> int:
        return len(self.first) + len(self.rest)

    def __iter__(self) -> Iterator[Any]:
        yield from chain(self.first, self.rest)

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(list(self))


class WaitingInOrder(Counted):
    """VLLM-32173, VLLM-57841: who was skipped returns in its order, and who holds blocks does not wait behind who does not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waiting: Any = _TwoQueues(self.policy, partial(self.meets, WaitingInOrder))
