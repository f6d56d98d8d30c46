"""Streaming input sessions on vLLM 0.16.0: a request whose client sends its input in turns, under one id.

Input that comes while a turn is under way waits in the request's `streaming_queue`, where None says that the client has no
more; input for a session that waits for it joins at once. Cited: add_request, _handle_stopped_request and
_update_request_as_session of v1/core/sched/scheduler.py.

Other than there: each turn's own length limit holds, the keys of blocks end with what is computed, a turn without a stop token
has no stop reason, a session that is closed while it waits has ended as its last turn did (there: aborted, so that what the next
stage is handed would depend on who is quicker), and input beyond what the model or the cache can hold ends the session with an
error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from vllm.v1.request import StreamingUpdate

from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches
from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel


class Turn(NamedTuple):
    """How a turn ended: why, and with which stop token."""

    reason: Status
    token: Any


class Sessions:
    """What clients send for requests that go on.

    fits      so many tokens have room in the model and in the whole cache
    keys      blocks that have become full get their keys
    end       ends a request with an error that its client hears of
    queued    the request waits (an event for its client)
    turns     requests whose turn has just ended, until their client is told
    closed    requests that were closed while they waited, and what their client is to be told of transfers
    """

    def __init__(
        self,
        kernel: SessionKernel,
        breaches: Breaches,
        *,
        fits: Callable[[int], bool],
        keys: Callable[[Seq], None],
        end: Callable[[Seq], None],
        queued: Callable[[Any], None],
    ) -> None:
        self._kernel, self._breaches = kernel, breaches
        self._fits, self._keys, self._end, self._queued = fits, keys, end, queued
        self.turns: dict[Seq, Turn] = {}
        self.closed: list[tuple[Seq, Any]] = []

    def input(self, seq: Seq, request: Any) -> None:
        """The client sends more under the id of an unfinished session, or (what is not resumable) says that it has no more."""
        update, queue = StreamingUpdate.from_request(request), seq.payload.streaming_queue
        if queue and queue[-1] is None:
            self._breaches.count(Party.CLIENT, "continue_session", f"{seq.id} was closed")
        elif seq.status is not Status.WAITING_FOR_STREAMING_REQ:
            queue.append(update)
        elif update is None:
            told = self._kernel.finish(seq, Status.FINISHED_STOPPED)
            if told:
                self.closed.append((seq, told))
        else:
            self._continue(seq, update)

    def stopped(self, seq: Seq, reason: Status) -> bool:
        """A session's turn is over, and it goes on; False when this was its last one, or it is a plain request."""
        request = seq.payload
        queue = request.streaming_queue
        if not request.resumable or (queue and queue[0] is None):
            return False
        self.turns[seq] = Turn(reason, request.stop_reason)
        self._kernel.end_turn(seq)
        if queue:
            self._continue(seq, queue.popleft())
        return True

    def _continue(self, seq: Seq, update: Any) -> None:
        more = update.prompt_token_ids or ()
        try:
            self._kernel.continue_session(seq, more, update.max_tokens)
        except Refused as refusal:
            self._breaches.refused(refusal)
            self._end(seq)
            return
        request = seq.payload
        request.prompt_token_ids = seq.tokens.copy()
        request.num_prompt_tokens = seq.prompt
        request.max_tokens = update.max_tokens
        request.sampling_params = update.sampling_params
        request.arrival_time = seq.arrival = update.arrival_time
        request.stop_reason = None
        for feature in update.mm_features or ():
            position = feature.mm_position
            offset = position.offset + seq.prompt - len(more)
            request.mm_features.append(replace(feature, mm_position=replace(position, offset=offset)))
        self._keys(seq)
        if self._fits(seq.prompt):
            self._queued(request)
        else:
            self._end(seq)
