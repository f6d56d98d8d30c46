"""Streaming input sessions, for a pair: clients that send their input in turns, and the original's sessions mended.

Some requests are sessions; when their next input comes, and when they are closed, follows from the request's id and the number
of the step, so that a case replays. Inputs stay within what the model and the cache can hold, and keep the arrival time of their
session: under priorities ours leaves a session that goes on at once where its old arrival put it, and the original moves it.

`Talking` mends, each by the row of docs/vllm-omni.md that says why: each turn has its own length limit and stop token; keys of
blocks end with what is computed; a session that is closed while it waits has ended as its last turn did; one that is announced
anew in the step after its last one is among the resumed ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from zlib import crc32

from tests.differential.build import Factory
from tests.differential.counted import Counted
from tests.differential.settings import Add
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import RequestStatus, StreamingUpdate
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler

TURNS = 4
"""Inputs of one session at most, the first one included."""


def _number(*parts: object) -> int:
    return crc32(" ".join(map(str, parts)).encode())


def is_session(add: Add) -> bool:
    """The client of this request goes on with it."""
    return not (_number("opens", add.rid) % 3 or add.pooling or add.grammar)


class Clients:
    """Who sends further input, and when."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        self.room = factory.setup.model_length - 1
        self.length: dict[str, int] = {}
        self.turns: Counter[str] = Counter()
        self.first: dict[str, Add] = {}

    def opened(self, add: Add) -> None:
        """A request arrives."""
        if is_session(add):
            self.length[add.rid] = add.own + add.shared + add.answer
            self.turns[add.rid] = 1
            self.first[add.rid] = add

    def inputs(self, step: int, live: set[str]) -> list[tuple[str, Callable[[], Any]]]:
        """What is sent before this step: the session, and how one side's request object is made."""
        found = []
        for rid in sorted(live & self.turns.keys()):
            number = _number(rid, step)
            if number % 4 or self.turns[rid] > TURNS:
                continue
            own, answer = 1 + number // 4 % 6, 1 + number // 24 % 5
            self.turns[rid] += 1
            self.length[rid] += own + answer
            last = self.turns[rid] > TURNS or self.length[rid] > self.room
            if last:
                self.turns[rid] = TURNS + 1
            arrival, priority = self.first[rid].arrival, self.first[rid].priority
            add = Add(rid, own=own, answer=answer, family=number % 2, arrival=arrival, priority=priority)
            found.append((rid, self._maker(add, not last)))
        return found

    def _maker(self, add: Add, resumable: bool) -> Callable[[], Any]:
        shared = self.factory.shared(add)

        def make() -> Any:
            request = self.factory.request(add, shared)
            request.resumable = resumable
            return request

        return make


class Talking(OmniARScheduler, Counted):  # type: ignore[misc]
    """Sessions (vllm-omni.md): limits, stop tokens and keys belong to a turn; who is closed between turns has ended well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.took_part: set[str] = set()
        self.closed_idle: list[tuple[Any, Any]] = []
        """Sessions that were closed while they waited, and what their clients are to be told of transfers."""
        self.last_told: Any = None
        self.between_turns: set[Any] = set()
        """Sessions that have blocks and no slot: since the end of a turn they were in no step."""
        super().__init__(*args, **kwargs)

    def _handle_stopped_request(self, request: Any) -> bool:
        over = bool(super()._handle_stopped_request(request))
        if not over:
            self.between_turns.add(request)
        return over

    def add_request(self, request: Any) -> None:
        there = self.requests.get(request.request_id)
        idle = there is not None and there.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        if idle and StreamingUpdate.from_request(request) is None:
            self.meets(Talking)
            self.last_told = None
            self.finish_requests(request.request_id, RequestStatus.FINISHED_STOPPED)
            if self.last_told:
                self.closed_idle.append((there, self.last_told))
        else:
            super().add_request(request)

    def _update_request_as_session(self, session: Any, update: Any) -> None:
        del session.block_hashes[session.num_computed_tokens // self.block_size :]
        super()._update_request_as_session(session, update)
        if session.max_tokens != update.max_tokens:
            self.meets(Talking)
        session.max_tokens = update.max_tokens

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
        self.last_told = super()._free_request(request, delay_free_blocks)
        return self.last_told

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        made = super().update_from_output(scheduler_output, model_runner_output)
        for request, told in self.closed_idle:
            output = EngineCoreOutput(
                request.request_id,
                [],
                finish_reason=request.get_finished_reason(),
                stop_reason=request.stop_reason,
                kv_transfer_params=told,
                num_cached_tokens=request.num_cached_tokens,
                num_external_computed_tokens=request.num_external_computed_tokens,
                num_nans_in_logits=request.num_nans_in_logits,
            )
            made.setdefault(request.client_index, EngineCoreOutputs()).outputs.append(output)
        self.closed_idle.clear()
        return made

    def schedule(self) -> Any:
        output = super().schedule()
        again = {new.req_id for new in output.scheduled_new_reqs} & self.took_part
        again -= output.finished_req_ids
        if again:
            self.meets(Talking)
            cached = output.scheduled_cached_reqs
            cached.resumed_req_ids = cached.resumed_req_ids | again
        self.took_part = set(output.num_scheduled_tokens)
        for request in (self.requests[rid] for rid in self.took_part):
            self.between_turns.discard(request)
            if request.resumable and request.stop_reason is not None:  # of its last turn
                self.meets(Talking)
                request.stop_reason = None
        return output
