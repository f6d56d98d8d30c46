"""vllm-omni's own AR scheduler with known defects mended, one small class for its hand-offs: see mended.py for vLLM's part.

What `HandedOn` mends, by the rows of the table of known defects: blocks named in a hand-off stay held by it alone (A2, A4, A12);
who is aborted or failed is not shipped, and leaves no mark (A5, A7); what a connector tells the client is kept, and its wish to
hold blocks, too (A10, A13); a snapshot at a sentinel holds the sentinel (A20).
"""

from __future__ import annotations

from typing import Any

from tests.differential.counted import Counted
from tests.differential.mended import MENDS
from tests.differential.mended_loads import LoadsHaveRoom
from tests.differential.omni_chunks import Gated
from tests.differential.omni_sessions import Talking
from vllm.v1.request import RequestStatus
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler

NORMAL = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class HandedOn(OmniARScheduler, Counted):  # type: ignore[misc]
    """A2, A4, A5, A7, A10, A12, A13, A20: a hand-off has a hold of its own, only on what is whole, and its client hears all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.pinned: dict[str, list[Any]] = {}
        self.table_held: set[str] = set()
        super().__init__(*args, **kwargs)
        self.prefix_with_pins = self.kv_cache_manager.get_num_common_prefix_blocks
        self.kv_cache_manager.get_num_common_prefix_blocks = self.prefix_without_pins

    def prefix_without_pins(self, rid: str) -> Any:
        """What is handed off is in nobody's table."""
        pins = [block for blocks in self.pinned.values() for block in blocks]
        for block in pins:
            block.ref_cnt -= 1
        common = self.prefix_with_pins(rid)
        for block in pins:
            block.ref_cnt += 1
        return common

    def _mark_request_for_kv_transfer(self, req_id: str, seq_len: int) -> None:
        super()._mark_request_for_kv_transfer(req_id, seq_len)
        named = self.requests_needing_kv_transfer.get(req_id)
        if named is not None and req_id not in self.pinned:
            pool = self.kv_cache_manager.block_pool
            self.pinned[req_id] = [pool.blocks[i] for i in named["block_ids"]]
            pool.touch(self.pinned[req_id])

    def _unpin(self, rid: str) -> None:
        self.kv_cache_manager.block_pool.free_blocks(reversed(self.pinned.pop(rid)))

    def _process_kv_transfer_trigger(self, request: Any, new_token_ids: list[int]) -> bool:
        criteria = self.kv_transfer_criteria
        if not criteria or criteria["type"] != "special_token":
            return bool(super()._process_kv_transfer_trigger(request, new_token_ids))
        self._at_sentinel(request)
        return False

    def _at_sentinel(self, request: Any) -> None:
        rid, outputs = request.request_id, list(request.output_token_ids)
        token = self.kv_transfer_criteria["token_id"]
        if rid in self.transfer_triggered_requests or token not in outputs:
            return
        place = request.num_prompt_tokens + outputs.index(token) + 1
        if min(request.num_computed_tokens, request.num_tokens) >= place:
            self.meets(HandedOn)
            self.transfer_triggered_requests.add(rid)
            self._mark_request_for_kv_transfer(rid, place)

    def _update_request_with_output(self, request: Any, new_token_ids: list[int]) -> Any:
        made = super()._update_request_with_output(request, new_token_ids)
        criteria = self.kv_transfer_criteria
        if (
            made[1]
            and criteria
            and criteria["type"] == "special_token"
            and self._should_transfer_kv_for_request("")
        ):
            self._at_sentinel(request)
        return made

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
        rid, params, hold = request.request_id, None, False
        if self.connector is not None:
            hold, params = self._connector_finished(request)
        self.encoder_cache_manager.free(request)
        self.finished_req_ids.add(rid)
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict[request.client_index].add(rid)
        if self._should_transfer_kv_for_request(rid):
            params = self._handed_on(request, params)
        self.transfer_triggered_requests.discard(rid)
        if hold or delay_free_blocks:
            self.table_held.add(rid)
        else:
            self._free_blocks(request)
        return params

    def _handed_on(self, request: Any, params: Any) -> Any:
        rid, needed = request.request_id, self.requests_needing_kv_transfer
        if request.status not in NORMAL:
            if needed.pop(rid, None) is not None:
                self.meets(HandedOn)
                self._unpin(rid)
        elif rid not in self.transfer_triggered_requests and min(
            request.num_computed_tokens, request.num_tokens
        ):
            self._mark_request_for_kv_transfer(rid, min(request.num_computed_tokens, request.num_tokens))
        if rid in needed:
            named = needed[rid]
            params = {**(params or {}), "past_key_values": named["block_ids"], "kv_metadata": named}
        if rid in needed or rid in self.active_kv_transfers:
            self.waiting_for_transfer_free.add(rid)
        return params

    def _free_blocks(self, request: Any) -> None:
        rid = request.request_id
        self.table_held.discard(rid)
        self.kv_cache_manager.free(request)
        if rid not in self.waiting_for_transfer_free and rid not in getattr(self, "ending", ()):
            del self.requests[rid]

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        reported, model_runner_output.kv_extracted_req_ids = model_runner_output.kv_extracted_req_ids, None
        flags, active = set(self.transfer_triggered_requests), set(self.active_kv_transfers)
        made = super().update_from_output(scheduler_output, model_runner_output)
        self.active_kv_transfers |= active  # the end of a session's turn is not the end of its hand-off
        self.transfer_triggered_requests |= flags & self.requests.keys() - self.waiting_for_transfer_free
        for rid in reported:
            if rid not in self.active_kv_transfers:
                continue
            self.active_kv_transfers.discard(rid)
            self._unpin(rid)
            if rid in self.waiting_for_transfer_free:
                self.waiting_for_transfer_free.discard(rid)
                if rid not in self.table_held:
                    del self.requests[rid]
        return made


class LoadsHaveRoom016(LoadsHaveRoom):
    """The same for vLLM 0.16.0, where loaded tokens are asked for by themselves, and sessions have blocks without a load."""

    between_turns: set[Any]

    def loads(self) -> list[Any]:
        return [request for request in super().loads() if request not in self.between_turns]

    def needs(self, request: Any, tokens: int, hit: Any = None) -> int:
        coordinator, tokens = self.kv_cache_manager.coordinator, min(tokens, self.max_model_len)
        found = hit.blocks if hit is not None else tuple([] for _ in coordinator.single_type_managers)
        blocks: int = coordinator.get_num_blocks_to_allocate(
            request.request_id, tokens, found, 0, request.num_computed_tokens, tokens
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
        external = more.get("num_external_computed_tokens", 0)
        self.external = external
        allocate, self.allocate_any = self.allocate_any, self._with_external
        self.real = allocate
        try:
            return super().allocate_slots(
                request,
                num_new_tokens + external,
                num_new_computed_tokens,
                new_computed_blocks,
                delay_cache_blocks,
                num_lookahead_tokens,
                **more,
            )
        finally:
            self.allocate_any = allocate

    def _with_external(self, request: Any, tokens: int, local: int, blocks: Any, **more: Any) -> Any:
        return self.real(
            request, tokens - self.external, num_new_computed_tokens=local, new_computed_blocks=blocks, **more
        )


OURS = tuple(LoadsHaveRoom016 if mend is LoadsHaveRoom else mend for mend in MENDS)


class Scheduler(*OURS, Talking, HandedOn, Gated):  # type: ignore[misc]
    """The AR scheduler, mended."""
