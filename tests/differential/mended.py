"""vLLM's own schedulers with known defects mended, one small class each, so that a run goes on where ours differs on purpose.

Each mend names the row of the table of known defects that it removes and changes nothing else; what is still different after
them is a bug of ours or a row of rows.py. `python -m tests.differential --plain` compares with the schedulers as they are.
For vLLM 0.13.0; later releases are compared as they are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler as OwnAsync
from vllm.v1.core.sched.request_queue import RequestQueue, create_request_queue
from vllm.v1.core.sched.scheduler import Scheduler as Own
from vllm.v1.core.single_type_kv_cache_manager import CrossAttentionManager
from vllm.v1.request import RequestStatus

from vllm_lifecycle.adapters.vllm.verified.encoder import Cache, CrossCache


class Counted(Own):  # type: ignore[misc]
    """Counts how often each mend made a difference."""

    met: Counter[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.met = Counter()
        super().__init__(*args, **kwargs)

    def meets(self, mend: type[Any]) -> None:
        """The mend decides otherwise than the original would."""
        self.met[mend.__name__] += 1


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


class StepsHoldBlocks(Counted):
    """VLLM-45357: blocks of a request that ends or is preempted stay held by the newest step in flight that has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.outstanding: list[int] = []
        self.number = 0
        self.newest: dict[str, int] = {}
        self.kept: list[tuple[int, Any, list[Any]]] = []
        self.free_at_once = self.kv_cache_manager.free
        self.kv_cache_manager.free = self.free_later
        self.common_prefix_of_all = self.kv_cache_manager.get_num_common_prefix_blocks
        self.kv_cache_manager.get_num_common_prefix_blocks = self.common_prefix

    def schedule(self) -> Any:
        output = super().schedule()
        self.number += 1
        output.number = self.number
        self.outstanding.append(self.number)
        self.newest.update(dict.fromkeys(output.num_scheduled_tokens, self.number))
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        self.outstanding.remove(scheduler_output.number)
        oldest = min(self.outstanding, default=self.number + 1)
        free = [entry for entry in self.kept if entry[0] < oldest]
        self.kept = [entry for entry in self.kept if entry[0] >= oldest]
        for _, manager, blocks in free:
            manager.block_pool.free_blocks(reversed(blocks))
        return super().update_from_output(scheduler_output, model_runner_output)

    def in_flight(self, rid: str) -> bool:
        return any(number <= self.newest.get(rid, 0) for number in self.outstanding)

    def common_prefix(self, rid: str) -> Any:
        """As if the kept blocks were free, for they are in nobody's table."""
        kept = [block for _, _, blocks in self.kept for block in blocks]
        for block in kept:
            block.ref_cnt -= 1
        common = self.common_prefix_of_all(rid)
        for block in kept:
            block.ref_cnt += 1
        return common

    def free_later(self, request: Any) -> None:
        rid = request.request_id
        if not self.in_flight(rid):
            self.free_at_once(request)
            return
        self.meets(StepsHoldBlocks)
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            self.kept.append((self.newest[rid], manager, manager.req_to_blocks.pop(rid, [])))
            manager.num_cached_block.pop(rid, None)


class HeldKeepAwake(Counted):
    """VLLM-43433: the engine stays awake while blocks of a finished request are held for a transfer."""

    def has_finished_requests(self) -> bool:
        noticed: bool = super().has_finished_requests()
        held = len(self.requests) > len(self.waiting) + len(self.running)
        if held and not noticed:
            self.meets(HeldKeepAwake)
        return noticed or held


class VictimsPromiseNothing(Counted):
    """Blocks that a pass enters in the prefix cache are not found any more when their request gives way in the same pass."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.promised: dict[str, int] = {}
        self.allocate_promised = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self.allocate_noting

    def schedule(self) -> Any:
        self.promised.clear()
        return super().schedule()

    def allocate_noting(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        known = self.kv_cache_manager.coordinator.single_type_managers[0].num_cached_block
        before = known.get(request.request_id, 0)
        fresh = self.allocate_promised(request, *args, **kwargs)
        if known.get(request.request_id, 0) > before:
            self.promised.setdefault(request.request_id, before)
        return fresh

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        rid = request.request_id
        if rid in self.promised:
            self.meets(VictimsPromiseNothing)
            first = self.promised.pop(rid)
            for manager in self.kv_cache_manager.coordinator.single_type_managers:
                last = manager.num_cached_block.get(rid, 0)
                self.kv_cache_manager.evict_blocks(
                    {b.block_id for b in manager.req_to_blocks[rid][first:last]}
                )
        super()._preempt_request(request, timestamp)


class FinishedStayFinished(Counted):
    """VLLM-33377: an output does not reach a request that has finished and is held."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        tokens = scheduler_output.num_scheduled_tokens
        live = {
            rid: n
            for rid, n in tokens.items()
            if rid in self.requests and not self.requests[rid].is_finished()
        }
        if any(rid in self.requests for rid in tokens.keys() - live.keys()):
            self.meets(FinishedStayFinished)
        output = dataclasses.replace(scheduler_output, num_scheduled_tokens=live)
        output.number = scheduler_output.number
        return super().update_from_output(output, model_runner_output)


class PreemptedHaveNoDrafts(Counted):
    """VLLM-30916: a preempted request carries no drafts."""

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)
        if request.spec_token_ids:
            self.meets(PreemptedHaveNoDrafts)
        request.spec_token_ids = []


class EncoderBudgetKept(Counted):
    """VLLM-52482, VLLM-55733: the drop list names no entry that is there; an input gives its share back once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        size = self.encoder_cache_manager.cache_size
        kind = CrossCache if self.is_encoder_decoder else Cache
        self.encoder_cache_manager: Any = kind(cache_size=size)


class WaitingPinNoInputs(Counted):
    """Who is not admitted gives back the encoder inputs it was planned with: else it pins what a running request waits for."""

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        users = set().union(*getattr(self.encoder_cache_manager, "cached", {}).values())
        for request in self.waiting:
            if request.request_id in users:
                self.meets(WaitingPinNoInputs)
                self.encoder_cache_manager.free(request)
        super()._update_after_schedule(scheduler_output)


class LoadsHoldBlocks(Counted):
    """VLLM-32255, VLLM-46240: who ends during a load keeps the blocks until the load, and a send if there is one, are done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ending: set[str] = set()
        self.sending: set[str] = set()

    def finish_requests(self, request_ids: Any, finished_status: Any) -> None:
        ids = (request_ids,) if isinstance(request_ids, str) else request_ids
        self.ending |= {
            rid
            for rid in ids
            if (request := self.requests.get(rid)) is not None
            and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            and rid not in self.finished_recving_kv_req_ids
        }
        super().finish_requests(request_ids, finished_status)

    def _connector_finished(self, request: Any) -> Any:
        delay, params = super()._connector_finished(request)
        if delay:
            self.sending.add(request.request_id)
        return delay, params

    def _free_blocks(self, request: Any) -> None:
        rid = request.request_id
        self.sending.discard(rid)
        if rid in self.ending:
            self.meets(LoadsHoldBlocks)
        else:
            super()._free_blocks(request)

    def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        done = self.ending & set(kv_connector_output.finished_recving or ())
        self.ending -= done
        for rid in done - self.sending:
            super()._free_blocks(self.requests[rid])
        super()._update_from_kv_xfer_finished(kv_connector_output)
        self.finished_recving_kv_req_ids -= done


class LoadsHaveRoom(Counted):
    """VLLM-29877, VLLM-45388: a load has a slot, and what it needs to run afterwards is promised to it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allocate_any = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self.allocate_slots

    def loads(self) -> list[Any]:
        return [
            request
            for request in self.requests.values()
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
            or (request.num_computed_tokens and request.status < RequestStatus.RUNNING)
        ]

    @property
    def max_num_running_reqs(self) -> int:
        """One that never stops a pass, or, without a slot for the head of the queue, one that does."""
        running, loads = len(self.running), self.loads()
        full = running + len(loads) >= self.slots
        head = self.waiting.peek_request() if self.waiting else None
        if not full or head in loads:
            return self.slots + len(loads) + 1
        if running < self.slots:
            self.meets(LoadsHaveRoom)
        return running

    @max_num_running_reqs.setter
    def max_num_running_reqs(self, slots: int) -> None:
        self.slots = slots

    def needs(self, request: Any, tokens: int, hit: Any = None) -> int:
        coordinator = self.kv_cache_manager.coordinator
        found = hit.blocks if hit is not None else tuple([] for _ in coordinator.single_type_managers)
        blocks: int = coordinator.get_num_blocks_to_allocate(
            request.request_id, min(tokens, self.max_model_len), found, 0
        )
        return blocks

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        delay_cache_blocks: bool = False,
        num_lookahead_tokens: int = 0,
        **more: Any,
    ) -> Any:
        loads = [] if request.status == RequestStatus.RUNNING else self.loads()
        if loads or delay_cache_blocks:
            later = 1 + self.num_lookahead_tokens
            start = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
            total = start + num_lookahead_tokens
            keep = sum(self.needs(load, load.num_tokens + later) for load in loads if load is not request)
            if delay_cache_blocks:
                whole = self.needs(request, request.num_tokens + later, new_computed_blocks)
                keep += whole - self.needs(request, start, new_computed_blocks)
            free = self.kv_cache_manager.block_pool.get_num_free_blocks()
            needed = self.needs(request, total, new_computed_blocks)
            if needed + keep > free:
                if needed <= free:
                    self.meets(LoadsHaveRoom)
                return None
        return self.allocate_any(
            request,
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks,
            delay_cache_blocks=delay_cache_blocks,
            num_lookahead_tokens=num_lookahead_tokens,
            **more,
        )


class CrossNeedsNoLess(Counted):
    """A running encoder-decoder request needs no less than nothing for cross attention (else blocks are promised twice)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            if isinstance(manager, CrossAttentionManager):
                manager.get_num_blocks_to_allocate = partial(
                    self.at_least_none, manager.get_num_blocks_to_allocate
                )

    def at_least_none(self, count: Any, *args: Any) -> int:
        needed: int = count(*args)
        if needed < 0:
            self.meets(CrossNeedsNoLess)
        return max(0, needed)


MENDS = (
    LoadsHoldBlocks,
    LoadsHaveRoom,
    VictimsPromiseNothing,
    WaitingPinNoInputs,
    CrossNeedsNoLess,
    FinishedStayFinished,
    WaitingInOrder,
    StepsHoldBlocks,
    HeldKeepAwake,
    PreemptedHaveNoDrafts,
    EncoderBudgetKept,
)


class Scheduler(*MENDS):  # type: ignore[misc]
    """The synchronous scheduler, mended."""


class AsyncScheduler(*MENDS, OwnAsync):  # type: ignore[misc]
    """The asynchronous scheduler, mended."""
