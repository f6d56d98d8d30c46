"""vLLM's own schedulers with known defects mended, one small class each, so that a run goes on where ours differs on purpose.

Each mend names the row of the table of known defects that it removes and changes nothing else; what is still different after
them is a bug of ours. `python -m tests.differential --plain` compares with the schedulers as they are.
This is the whole for vLLM 0.13.0 (mended032.py: 0.32.0); what concerns loads and the waiting queue is in modules of its own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from typing import Any

from tests.differential.counted import Counted, Numbered, PassesGoOn
from tests.differential.mended_encoder import EncoderBudgetKept
from tests.differential.mended_failures import LostBlocksAreNotFound, SharersComputeAgain
from tests.differential.mended_loads import LoadsHaveRoom, LoadsHoldBlocks
from tests.differential.mended_waiting import WaitingInOrder
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as OwnAsync
from vllm.v1.core.single_type_kv_cache_manager import CrossAttentionManager
from vllm.v1.request import RequestStatus


class StepsHoldBlocks(Numbered):
    """VLLM-45357: blocks that a request gives up stay held by the newest step in flight that has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        manager = self.kv_cache_manager
        self.kept: list[tuple[int, Any, list[Any]]] = []
        self.growing: Any = None
        self.free_at_once, self.grow, self.give_back = (
            manager.free,
            manager.allocate_slots,
            manager.block_pool.free_blocks,
        )
        manager.free, manager.allocate_slots, manager.block_pool.free_blocks = (
            self.free_later,
            self.grown,
            self.freed,
        )
        self.common_prefix_of_all = manager.get_num_common_prefix_blocks
        manager.get_num_common_prefix_blocks = self.common_prefix

    def answered(self, number: int, rows: dict[str, int]) -> None:
        oldest = min(self.outstanding, default=self.number + 1)
        free = [entry for entry in self.kept if entry[0] < oldest]
        self.kept = [entry for entry in self.kept if entry[0] >= oldest]
        for _, manager, blocks in free:
            manager.block_pool.free_blocks(reversed(blocks))
        super().answered(number, rows)

    def nobody_gives_way(self, request: Any) -> bool:
        """Blocks of a victim that a step in flight touches would come too late."""
        late = self.in_flight(self.victim().request_id)
        if late:
            self.meets(StepsHoldBlocks)
        return late

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)
        self.newest.pop(request.request_id, None)

    def common_prefix(self, rid: str) -> Any:
        """As if the kept blocks were free, for they are in nobody's table."""
        kept = [block for _, _, blocks in self.kept for block in blocks]
        for block in kept:
            block.ref_cnt -= 1
        common = self.common_prefix_of_all(rid)
        for block in kept:
            block.ref_cnt += 1
        return common

    def grown(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.growing = request
        made = self.grow(request, *args, **kwargs)
        self.growing = None
        return made

    def freed(self, ordered_blocks: Any) -> None:
        """Blocks that leave a window wait for the step in flight as well."""
        request = self.growing
        if request is None or not self.in_flight(request.request_id):
            self.give_back(ordered_blocks)
        else:
            self.meets(StepsHoldBlocks)
            manager = self.kv_cache_manager.coordinator.single_type_managers[0]
            self.kept.append((self.newest[request.request_id], manager, list(ordered_blocks)[::-1]))

    def free_later(self, request: Any) -> None:
        rid = request.request_id
        if not self.in_flight(rid):
            self.free_at_once(request)
            return
        self.meets(StepsHoldBlocks)
        for manager in self.kv_cache_manager.coordinator.single_type_managers:
            self.kept.append((self.newest[rid], manager, manager.req_to_blocks.pop(rid, [])))
            manager.num_cached_block.pop(rid, None)

    def reset_prefix_cache(self, reset_running_requests: bool = False, *args: Any) -> bool:
        """A forced reset forgets what is cached although steps in flight still hold some."""
        pool = self.kv_cache_manager.block_pool
        count = pool.get_num_free_blocks

        def free() -> int:
            kept = {block.block_id for _, _, blocks in self.kept for block in blocks}
            return int(count()) + len(kept)

        if reset_running_requests:
            pool.get_num_free_blocks = free
        try:
            done: bool = super().reset_prefix_cache(reset_running_requests, *args)
        finally:
            pool.get_num_free_blocks = count
        return done


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


class FullIsFull(Counted):
    """A request that fills the model's length ends, its least length reached or not: the next pass would give it -1 tokens."""

    def _update_request_with_output(self, request: Any, new_token_ids: list[int]) -> tuple[list[int], bool]:
        room = self.max_model_len - request.num_tokens
        tokens, stopped = super()._update_request_with_output(request, new_token_ids[:room])
        if not stopped and request.num_tokens >= self.max_model_len:
            self.meets(FullIsFull)
            request.status = RequestStatus.FINISHED_LENGTH_CAPPED
            stopped = True
        return tokens, stopped


class FinishedStayFinished(Numbered):
    """VLLM-33377: an output does not reach a request that has finished and is held, nor a run whose tokens were dropped."""

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        number, tokens = scheduler_output.number, scheduler_output.num_scheduled_tokens
        live = {
            rid: n
            for rid, n in tokens.items()
            if rid in self.requests
            and not self.requests[rid].is_finished()
            and (number, rid) not in self.dropped
        }
        if any(rid in self.requests for rid in tokens.keys() - live.keys()):
            self.meets(FinishedStayFinished)
        output = dataclasses.replace(scheduler_output, num_scheduled_tokens=live)
        output.number = number
        return super().update_from_output(output, model_runner_output)


class FailedLoadsDropTokens(Numbered):
    """Tokens that were computed from a load in the step, which then failed, count for nothing, nor does what awaited them."""

    def _handle_invalid_blocks(self, *args: Any) -> set[str]:
        affected: set[str] = super()._handle_invalid_blocks(*args)
        for request in self.running:
            if request.request_id in affected:
                if self.drop(request.request_id) or request.num_output_placeholders:
                    self.meets(FailedLoadsDropTokens)
                request.num_output_placeholders = 0
                request.spec_token_ids = []
        return affected


class ResetsDropWhatIsInFlight(Numbered):
    """A forced reset drops the tokens in flight: not the next one, when there is none, and not only one, when there are two."""

    def reset_prefix_cache(self, *args: Any) -> bool:
        for request in self.running if args[:1] == (True,) else ():
            self.meets(ResetsDropWhatIsInFlight)
            self.drop(request.request_id)
        done: bool = super().reset_prefix_cache(*args)
        for request in self.waiting:
            request.discard_latest_async_tokens = False
        return done


class PreemptedHaveNoDrafts(Counted):
    """VLLM-30916: a preempted request carries no drafts."""

    def _preempt_request(self, request: Any, timestamp: float) -> None:
        super()._preempt_request(request, timestamp)
        if request.spec_token_ids:
            self.meets(PreemptedHaveNoDrafts)
        request.spec_token_ids = []


class StepsHoldEntries(Numbered):
    """VLLM-45347: encoder entries are let go when the steps that read them are answered, not when the last one is planned."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ahead: Counter[str] = Counter()
        self.runs: dict[tuple[int, str], int] = {}
        self.later: list[tuple[int, Any]] = []
        self.let_go = self.encoder_cache_manager.free
        self.encoder_cache_manager.free = self.let_go_later

    def schedule(self, *args: Any) -> Any:
        output = super().schedule(*args)
        for rid, tokens in output.num_scheduled_tokens.items():
            self.ahead[rid] += tokens
            self.runs[self.number, rid] = self.requests[rid].num_preemptions
        self.later = [entry for entry in self.later if entry[1].request_id not in output.num_scheduled_tokens]
        return output

    def _free_encoder_inputs(self, request: Any) -> None:
        """Not yet: the step has only been planned."""

    def answered(self, number: int, rows: dict[str, int]) -> None:
        for rid, tokens in rows.items():
            self.ahead[rid] -= tokens
            request, run = self.requests.get(rid), self.runs.pop((number, rid))
            if request is None or request.is_finished() or run != request.num_preemptions:
                continue
            request.num_computed_tokens -= self.ahead[rid]
            super()._free_encoder_inputs(request)
            request.num_computed_tokens += self.ahead[rid]
        done = [entry for entry in self.later if entry[0] not in self.outstanding]
        for entry in done:
            self.later.remove(entry)
            self.let_go(entry[1])
        super().answered(number, rows)

    def let_go_later(self, request: Any) -> None:
        rid = request.request_id
        if any(one is request for _, one in self.later):
            return
        if request.has_encoder_inputs and self.in_flight(rid):
            self.meets(StepsHoldEntries)
            self.later.append((self.newest[rid], request))
        else:
            self.let_go(request)


class WaitingPinNoInputs(Counted):
    """Who is not admitted gives back the encoder inputs it was planned with: else it pins what a running request waits for."""

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        users = set().union(*getattr(self.encoder_cache_manager, "cached", {}).values())
        for request in self.waiting:
            if request.request_id in users:
                self.meets(WaitingPinNoInputs)
                self.encoder_cache_manager.free(request)
        super()._update_after_schedule(scheduler_output)


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
    StepsHoldEntries,
    WaitingPinNoInputs,
    CrossNeedsNoLess,
    FinishedStayFinished,
    SharersComputeAgain,
    LostBlocksAreNotFound,
    FailedLoadsDropTokens,
    ResetsDropWhatIsInFlight,
    WaitingInOrder,
    StepsHoldBlocks,
    HeldKeepAwake,
    PreemptedHaveNoDrafts,
    EncoderBudgetKept,
    PassesGoOn,
    FullIsFull,
)


class Scheduler(*MENDS):  # type: ignore[misc]
    """The synchronous scheduler, mended."""


class AsyncScheduler(*MENDS, OwnAsync):  # type: ignore[misc]
    """The asynchronous scheduler, mended."""
