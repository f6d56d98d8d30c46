"""The output of a pass in vLLM 0.32.0's words: `SchedulerOutput`, `NewRequestData`, `CachedRequestData`.

Rule: what is handed out is never changed afterwards; lists that the records go on using are copied. Cited: the end of
schedule and _make_cached_request_data of v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.output import (
    CachedRequestData,
    NewRequestData,
    ScheduledEncoderInputStats,
    SchedulerOutput,
)

from vllm_lifecycle.adapters.vllm.verified.lockstep import Before, new_blocks, of_members, untold
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.scheduling.plan import Blocks, Plan


def _copy(blocks: Blocks) -> Blocks:
    return tuple(list(group) for group in blocks)


class Outputs:
    """Makes a step's output of a plan.

    second_runner   the second model runner: who runs again is told like a new request, and nothing about the step before
    tells_tokens    sampled tokens are sent back, since the first pipeline stage does not see what the last one samples
    mrope           positions of the model come from its inputs' metadata
    counts_inputs   encoder inputs of the step are counted for the log
    """

    def __init__(
        self, *, second_runner: bool, tells_tokens: bool, mrope: bool, drafts: int, counts_inputs: bool
    ) -> None:
        self.second_runner, self._tells = second_runner, tells_tokens
        self._mrope, self._drafts, self._counts = mrope, drafts, counts_inputs

    def make(
        self,
        plan: Plan,
        *,
        before: Before,
        preempted: set[str],
        finished: set[str],
        encoder_cache: Any,
    ) -> Any:
        """The output of a pass whose plan is not dispatched yet; `before` took part in the step before.

        `encoder_cache`: None when there are no encoder inputs.
        """
        tokens, new, resumed = plan.tokens, plan.new, plan.resumed
        if self.second_runner and resumed:
            new, resumed = [*new, *resumed], []
        output = SchedulerOutput(
            [self._new(seq, plan) for seq in new] if new else [],
            self._cached(plan, resumed, before),
            tokens,
            plan.total,
            plan.drafts,
            plan.encoder,
            finished,
            [] if encoder_cache is None else encoder_cache.get_freed_mm_hashes(),
            preempted_req_ids=preempted,
            num_spec_tokens_to_schedule=self._drafts,
        )
        if plan.loaded:
            output.has_sync_kv_loads = True
        if encoder_cache is not None:
            output.ec_manager_metadata = encoder_cache.get_manager_metadata()
            if self._counts:
                output.scheduled_encoder_input_stats = self._input_stats(plan)
        return output

    def _new(self, seq: Seq, plan: Plan) -> Any:
        return NewRequestData.from_request(
            seq.payload,
            _copy(plan.fresh[seq.id]),
            seq.tokens if self.second_runner else None,
            uses_mrope=self._mrope,
        )

    def _cached(self, plan: Plan, resumed: list[Seq], before: Before) -> Any:
        served = plan.lockstep
        if served is not None and not plan.running and not resumed and not self._tells:
            known = {} if self.second_runner else untold(served, before)
            return CachedRequestData(*of_members(served, known))
        return self._told(plan, resumed, before)

    def _told(self, plan: Plan, resumed: list[Seq], before: Before) -> Any:
        """The general way; with sampled tokens, if they are told, of those that are no lockstep decoders."""
        fresh = plan.fresh
        seqs = [*plan.running, *resumed]
        known: dict[str, list[int]] = {}
        if not self.second_runner:
            known = {seq.id: seq.tokens.copy() for seq in seqs if seq.id not in before}
        blocks: list[Blocks | None] = [fresh[seq.id] if any(fresh[seq.id]) else None for seq in plan.running]
        ids = [seq.id for seq in seqs]
        blocks += [_copy(fresh[seq.id]) for seq in resumed]
        computed = [seq.computed for seq in seqs]
        shown = [len(seq.outputs) + seq.placeholders for seq in seqs]
        served = plan.lockstep
        if served is not None:
            ids = served.lanes.ids + ids
            blocks = new_blocks(served) + blocks
            computed, shown = served.computed + computed, served.shown + shown
            if not self.second_runner:
                known = untold(served, before) | known
        return CachedRequestData(
            req_ids=ids,
            resumed_req_ids={seq.id for seq in resumed},
            new_token_ids=[self._sampled(seq, plan) for seq in seqs] if self._tells else [],
            all_token_ids=known,
            new_block_ids=blocks,
            num_computed_tokens=computed,
            num_output_tokens=shown,
        )

    def _sampled(self, seq: Seq, plan: Plan) -> list[int]:
        count = plan.tokens[seq.id] - len(plan.drafts.get(seq.id, ()))
        return seq.tokens[seq.computed : seq.computed + count]

    def _input_stats(self, plan: Plan) -> Any:
        stats = ScheduledEncoderInputStats()
        for seq in (*plan.running, *plan.new, *plan.resumed):
            for index in plan.encoder.get(seq.id, ()):
                stats.num_inputs += 1
                stats.output_tokens += seq.payload.mm_features[index].mm_position.get_num_embeds()
        return stats if stats.num_inputs else None
