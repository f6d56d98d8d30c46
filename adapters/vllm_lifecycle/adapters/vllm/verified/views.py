"""What others read from a scheduler, as views of the kernel's state: requests, queues, the running list.

A `Request` of vLLM becomes a view of its `Seq`: the instance is given a subclass whose counters and status read and write the
record, so that a number is written down once and whoever holds the request (engine, connector, test) sees it. The queues are
views as well; a change made through them is made in the kernel. Rejected: keeping vLLM's own containers beside the kernel's and
copying after every call, which costs time per request per step and is out of date in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from typing import Any

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.profiles import profile
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.queue import Queue
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Steps


class Names:
    """The states of one release: the spec's members and the release's `RequestStatus` members by name.

    steps       the steps in flight of the scheduler whose requests are views
    counted     tokens in flight are counted in the request, for vLLM's own manager reads them for each allocation
    """

    counted = False

    def __init__(self, release: str, statuses: Any) -> None:
        self.steps: Steps | None = None
        self.views: dict[type[Any], type[Any]] = {}
        told = profile(release)
        self.theirs: dict[Status, Any] = {}
        for status in Status:
            name = told.status_name(status)
            if name is not None and name in statuses.__members__:
                self.theirs[status] = statuses[name]
        self.ours: dict[Any, Status] = {theirs: status for status, theirs in self.theirs.items()}


def _single(request: Any) -> Seq:
    """The record of a request that is about to be changed from outside: it is served by itself from now on."""
    seq: Seq = request._seq
    if seq.lockstep is not None:
        seq.lockstep.leave(seq)
    return seq


def _counter(field: str) -> property:
    """A property that reads and writes one field of the record."""
    shown = {"computed": "computed_now", "placeholders": "awaited_now"}.get(field, field)

    def read(request: Any) -> Any:
        return getattr(request._seq, shown)

    def read_computed(request: Any) -> Any:
        seq = request._seq
        load = seq.receive
        if load is not None and load.valid is not None and seq.status is Status.WAITING_FOR_REMOTE_KVS:
            return load.valid  # what is whole of a load that failed in part
        return seq.computed_now

    def write(request: Any, value: Any) -> None:
        seq = _single(request)
        setattr(seq, field, value)

    return property(read_computed if field == "computed" else read, write)


def _tokens(name: str) -> property:
    """A list of the request's tokens, complete whenever it is asked for."""

    def read(request: Any) -> Any:
        lockstep = request._seq.lockstep
        if lockstep is not None:
            lockstep.flush()
        return request.__dict__[name]

    def write(request: Any, value: Any) -> None:
        request.__dict__[name] = value

    return property(read, write)


TOKENS = ("_all_token_ids", "_output_token_ids", "all_token_ids", "output_token_ids")
"""The lists of vLLM's request that grow with each step."""

FIELDS = {
    "num_computed_tokens": "computed",
    "num_output_placeholders": "placeholders",
    "spec_token_ids": "drafts",
    "num_cached_tokens": "cached_tokens",
    "num_preemptions": "preemptions",
    "num_external_computed_tokens": "external",
    "is_prefill_chunk": "chunk",
}
"""vLLM's counters and the fields of `Seq` that they show."""


def _stale(names: Names, seq: Seq) -> tuple[int, bool]:
    """Tokens in flight of an earlier run or incarnation of this id, and whether what comes of them is dropped."""
    tokens, delivered = 0, False
    for owner, run, number in _rows(names):
        if owner.id == seq.id and (owner is not seq or run != seq.run):
            tokens += number
            delivered |= owner is seq and run >= seq.deliver_from
    return tokens, not delivered


def _rows(names: Names) -> Iterator[tuple[Seq, int, int]]:
    """Whose tokens of which run are in flight, and how many."""
    for step in names.steps.outstanding.values() if names.steps is not None else ():
        yield from ((row.seq, row.run, row.tokens) for row in step.rows)
        yield from ((member, member.run, 1) for member in step.lockstep if member not in step.left)
        yield from ((member, run, 1) for member, run in step.left.items())


def _in_flight(names: Names) -> property:
    """Tokens of the request in steps that are not answered."""

    def read(request: Any) -> int:
        if names.counted:
            return int(request.__dict__["num_in_flight_tokens"])
        return sum(tokens for owner, _, tokens in _rows(names) if owner is request._seq)

    def write(request: Any, value: int) -> None:
        request.__dict__["num_in_flight_tokens"] = value

    return property(read, write)


def _view(cls: type[Any], names: Names) -> type[Any]:
    """The subclass of a request class whose instances are views of a `Seq`."""
    if cls in names.views:
        return names.views[cls]
    theirs, ours = names.theirs, names.ours

    def read(request: Any) -> Any:
        seq = request._seq
        return theirs[seq.reason or seq.status]

    def write(request: Any, status: Any) -> None:
        _single(request).status = ours[status]

    members: dict[str, Any] = {name: _counter(field) for name, field in FIELDS.items()}
    members |= {name: _tokens(name) for name in TOKENS}
    members["status"] = property(read, write)
    members["num_in_flight_tokens"] = _in_flight(names)
    members["num_stale_output_tokens"] = property(lambda request: _stale(names, request._seq)[0])
    members["drop_stale_output"] = property(lambda request: _stale(names, request._seq)[1])
    members["__module__"], members["__doc__"] = __name__, cls.__doc__
    made = names.views[cls] = type(cls.__name__, (cls,), members)
    return made


def adopt(request: Any, names: Names) -> Seq:
    """The record of a request that arrives; the request is a view of it from now on."""
    values = request.__dict__
    lora = request.lora_request
    seq = Seq(
        request.request_id,
        request,
        request._all_token_ids,
        request._output_token_ids,
        request.block_hashes,
        limit=request.max_tokens,
        priority=request.priority,
        arrival=request.arrival_time,
        lora=lora.lora_int_id if lora is not None else 0,
        skip_cache=request.skip_reading_prefix_cache,
        status=names.ours[values.pop("status")],
    )
    for name, field in FIELDS.items():
        if name in values:
            setattr(seq, field, values.pop(name))
    seq.drafts = seq.drafts or ()
    for name in ("num_stale_output_tokens", "drop_stale_output"):
        values.pop(name, None)
    request._seq = seq
    request.__class__ = _view(type(request), names)
    return seq


def record(request: Any, names: Names) -> Seq:
    """The record of a request, which is adopted if it is not a view yet."""
    seq: Seq = request._seq if hasattr(request, "_seq") else adopt(request, names)
    return seq


class Waiting:
    """vLLM's `RequestQueue` over the kernel's waiting queue; who holds blocks, in a queue of its own, comes first."""

    def __init__(self, queue: Callable[[], Queue], first: Callable[[], Queue] | None = None) -> None:
        self._of, self._first = queue, first or queue

    def _next(self) -> Queue:
        first = self._first()
        return first if len(first) else self._of()

    def _all(self) -> Iterator[Queue]:
        if self._first is not self._of:
            yield self._first()
        yield self._of()

    def add_request(self, request: Any) -> None:
        self._of().append(request._seq)

    append = add_request

    def pop_request(self) -> Any:
        return self._next().pop().payload

    def peek_request(self) -> Any:
        return self._next().peek().payload

    def prepend_request(self, request: Any) -> None:
        self._of().prepend(request._seq)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        self._of().put_back([request._seq for request in requests])

    def remove_request(self, request: Any) -> None:
        seq = request._seq
        next((queue for queue in self._all() if seq in queue), self._of()).remove(seq)

    remove = remove_request

    def remove_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if request in self:
                self.remove_request(request)

    def __contains__(self, request: object) -> bool:
        seq = getattr(request, "_seq", None)
        return any(seq in queue for queue in self._all())

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        for queue in self._all():
            yield from (seq.payload for seq in queue)

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(list(self))

    def __len__(self) -> int:
        return sum(map(len, self._all()))

    def __bool__(self) -> bool:
        return len(self) > 0


class Running(MutableSequence[Any]):
    """The running requests as a list, over the kernel's list of records."""

    def __init__(self, seqs: Callable[[], list[Seq]]) -> None:
        self._of = seqs

    def _changing(self) -> list[Seq]:
        """The list, in which everybody is served by himself from now on."""
        seqs = self._of()
        for seq in seqs:
            if seq.lockstep is not None:
                seq.lockstep.leave(seq)
        return seqs

    def __getitem__(self, index: Any) -> Any:
        found = self._of()[index]
        return [seq.payload for seq in found] if isinstance(index, slice) else found.payload

    def __setitem__(self, index: Any, request: Any) -> None:
        self._changing()[index] = [r._seq for r in request] if isinstance(index, slice) else request._seq

    def __delitem__(self, index: Any) -> None:
        del self._changing()[index]

    def insert(self, index: int, value: Any) -> None:
        """A request that is put in the list runs."""
        value._seq.status = Status.RUNNING
        self._changing().insert(index, value._seq)

    def __iter__(self) -> Iterator[Any]:
        return (seq.payload for seq in self._of())

    def __len__(self) -> int:
        return len(self._of())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, Running)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Requests(MutableMapping[str, Any]):
    """Requests by id, those included that are finished and held for a transfer, over the kernel's records."""

    def __init__(self, kernel: Callable[[], Kernel], names: Names) -> None:
        self._kernel, self._names = kernel, names

    @property
    def _seqs(self) -> dict[str, Seq]:
        return self._kernel().seqs

    def __getitem__(self, rid: str) -> Any:
        return self._seqs[rid].payload

    def __setitem__(self, rid: str, request: Any) -> None:
        self.pop(rid, None)
        seq = record(request, self._names)
        self._seqs[rid] = seq
        self._kernel().unfinished += seq.reason is None

    def __delitem__(self, rid: str) -> None:
        seq = self._seqs.pop(rid)
        self._kernel().unfinished -= seq.reason is None

    def __contains__(self, rid: object) -> bool:
        return rid in self._seqs

    def __iter__(self) -> Iterator[str]:
        return iter(self._seqs)

    def __len__(self) -> int:
        return len(self._seqs)

    def __repr__(self) -> str:
        return repr(dict(self))
