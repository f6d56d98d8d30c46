"""The verified scheduler on vLLM 0.13.0: its constructor, and how a step, an output and statistics look there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar

from vllm import envs
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.output import CachedRequestData, GrammarOutput, NewRequestData, SchedulerOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import RequestStatus

from vllm_lifecycle.adapters.vllm.verified.base import Verified
from vllm_lifecycle.adapters.vllm.verified.hybrid import HybridStore
from vllm_lifecycle.adapters.vllm.verified.loads import Loads
from vllm_lifecycle.adapters.vllm.verified.lockstep import CACHED, HEADERS, new_blocks, of_members, untold
from vllm_lifecycle.adapters.vllm.verified.stops import least_first
from vllm_lifecycle.adapters.vllm.verified.update import Answers
from vllm_lifecycle.adapters.vllm.verified.views import Waiting
from vllm_lifecycle.statemachine.kernel.lanes import Lanes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step
from vllm_lifecycle.statemachine.kernel.store import V0_13_0 as STORE
from vllm_lifecycle.statemachine.kernel.store import StoreRules
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import V0_13_0, Limits, Rules


class Answers013(Answers):
    """Answers, with the outputs of 0.13.0; `connector_stats`: what the connector's two sides counted up to the last answer."""

    connector_stats: Any = None

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        report = answer.kv_connector_output
        self.connector_stats = self.world.connector_stats(report) if report else None
        return super().process(step, answer)

    def output(
        self,
        seq: Seq,
        tokens: list[int],
        told: Any,
        logprobs: Any = None,
        prompt_logprobs: Any = None,
        vector: Any = None,
        **more: Any,
    ) -> Any:
        request = seq.payload
        return EngineCoreOutput(
            seq.id,
            tokens,
            logprobs,
            prompt_logprobs,
            vector,
            None if seq.reason is None else RequestStatus.get_finished_reason(request.status),
            request.stop_reason,
            request.take_events() if request.events else None,
            told,
            request.trace_headers,
            seq.cached_tokens,
            request.num_nans_in_logits,
        )

    def usual(self, lanes: Lanes, tokens: Sequence[list[int]]) -> list[Any]:
        if lanes.blank[HEADERS] and lanes.blank[CACHED]:
            return list(map(EngineCoreOutput, lanes.ids, tokens))
        headers, cached = lanes.constants[HEADERS], lanes.constants[CACHED]
        return list(map(EngineCoreOutput, lanes.ids, tokens, *[repeat(None)] * 7, headers, cached))


class VerifiedScheduler(Verified):
    """Runs inside vLLM 0.13.0 in place of its `Scheduler` (or `AsyncScheduler`, as the configuration says)."""

    RELEASE = "0.13.0"
    _answers: Answers013
    STORE_RULES: ClassVar[StoreRules] = STORE
    OWN_STORE: ClassVar[tuple[type[Any], ...]] = (FullAttentionSpec,)
    OUTPUT: ClassVar[type[Any]] = SchedulerOutput

    def __init__(
        self,
        vllm_config: Any,
        kv_cache_config: Any,
        structured_output_manager: Any,
        block_size: int,
        mm_registry: Any = MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        self.use_v2_model_runner = envs.VLLM_USE_V2_MODEL_RUNNER
        self._build(
            vllm_config,
            kv_cache_config,
            structured_output_manager,
            block_size,
            mm_registry,
            include_finished_set,
            log_stats,
        )

    def _assemble(self, registry: Any) -> None:
        super()._assemble(registry)
        self.waiting = Waiting(lambda: self._kernel.waiting, lambda: self._kernel.holding)

    def make_manager(self) -> Any:
        """The manager of vLLM, for models that our store does not serve."""
        return KVCacheManager(
            kv_cache_config=self.kv_cache_config,
            max_model_len=self.max_model_len,
            enable_caching=self.cache_config.enable_prefix_caching,
            use_eagle=self.use_eagle,
            log_stats=self.log_stats,
            enable_kv_cache_events=self.enable_kv_cache_events,
            dcp_world_size=self.dcp_world_size,
            pcp_world_size=self.pcp_world_size,
            hash_block_size=self.block_size,
            metrics_collector=self.kv_metrics_collector,
        )

    def make_hybrid(self, watch: Any) -> HybridStore:
        """A store on vLLM's own manager."""
        return HybridStore(self.make_manager(), self.max_model_len, watch)

    def _encoder_sizes(self, registry: Any) -> tuple[int, int]:
        from vllm.v1.core.encoder_cache_manager import compute_encoder_budget

        sizes: tuple[int, int] = compute_encoder_budget(
            model_config=self.vllm_config.model_config,
            scheduler_config=self.scheduler_config,
            mm_registry=registry,
        )
        return sizes

    def _ends(self, request: Any) -> tuple[Any, Sequence[int]]:
        params = request.sampling_params
        return None if params.ignore_eos else request.eos_token_id, params.stop_token_ids or ()

    def _rules(self) -> Rules:
        return replace(V0_13_0, asynchronous=self.asynchronous, returns_inputs=True)

    def _limits(self) -> Limits:
        config = self.scheduler_config
        return Limits(
            tokens=self.max_num_scheduled_tokens,
            model_len=self.max_model_len,
            threshold=config.long_prefill_token_threshold,
            chunked=config.enable_chunked_prefill,
            lookahead=self.num_lookahead_tokens,
            drafts=self.num_spec_tokens,
            encoder=self.max_num_encoder_input_tokens,
            shift=1 if self.use_eagle else 0,
            loras=self.lora_config.max_loras if self.lora_config else 0,
            cross=config.max_num_encoder_input_tokens if self.is_encoder_decoder else 0,
        )

    def _make_answers(self) -> Answers013:
        transfer = self.vllm_config.kv_transfer_config
        recompute = transfer is None or transfer.kv_load_failure_policy == "recompute"
        return Answers013(
            self._kernel,
            self._world,
            Loads(self._kernel, self.breaches, recompute),
            self._stats,
            self.breaches,
            self.structured_output_manager,
            stop=least_first,
            model_len=self.max_model_len,
            hash_size=self.block_size,
            asynchronous=self.asynchronous,
        )

    # a step

    def _output(self, plan: Plan) -> Any:
        new, resumed = plan.new, plan.resumed
        if self.use_v2_model_runner:
            new, resumed = new + resumed, []
        running = self._kernel.running
        groups = len(self.kv_cache_config.kv_cache_groups)
        return self.OUTPUT(
            [self._new(plan, seq) for seq in new] if new else [],
            self._cached(plan, plan.running + resumed, resumed),
            plan.tokens,
            plan.total,
            plan.drafts,
            plan.encoder,
            self._kernel.store.common_prefix(running[0]) if running else [0] * groups,
            self._kernel.notices,
            self.encoder_cache_manager.get_freed_mm_hashes() if self.max_num_encoder_input_tokens else [],
            preempted_req_ids={seq.id for seq in plan.preempted} if plan.preempted else set(),
        )

    def _new(self, plan: Plan, seq: Seq) -> NewRequestData:
        table = tuple(list(group) for group in plan.fresh[seq.id])
        if self.use_v2_model_runner:
            return NewRequestData.from_request(seq.payload, table, seq.tokens.copy())
        return NewRequestData.from_request(seq.payload, table)

    def _cached(self, plan: Plan, seqs: list[Seq], resumed: list[Seq]) -> CachedRequestData:
        fresh, known, served = plan.fresh, self._before, plan.lockstep
        if served is not None and not seqs:
            return CachedRequestData(*of_members(served, untold(served, known)))
        blocks: list[tuple[list[int], ...] | None] = []
        for seq in seqs:
            ids = fresh[seq.id]
            blocks.append(ids if any(ids) else None)
        for at in range(len(seqs) - len(resumed), len(seqs)):
            ids = blocks[at] or ()
            blocks[at] = tuple(list(group) for group in ids)
        names = [seq.id for seq in seqs]
        told = {seq.id: seq.tokens.copy() for seq in seqs if seq.id not in known}
        computed = [seq.computed for seq in seqs]
        shown = [len(seq.outputs) + seq.placeholders for seq in seqs]
        if served is not None:
            names = served.lanes.ids + names
            told = untold(served, known) | told
            blocks = new_blocks(served) + blocks
            computed, shown = served.computed + computed, served.shown + shown
        return CachedRequestData(
            req_ids=names,
            resumed_req_ids={seq.id for seq in resumed},
            new_token_ids=[self._stage_tokens(plan, seq) for seq in seqs] if self.use_pp else [],
            all_token_ids=told,
            new_block_ids=blocks,
            num_computed_tokens=computed,
            num_output_tokens=shown,
        )

    def _stage_tokens(self, plan: Plan, seq: Seq) -> list[int]:
        """The tokens of a row that the first pipeline stage cannot know from the last one."""
        count = plan.tokens[seq.id] - len(plan.drafts.get(seq.id, ()))
        return seq.tokens[seq.computed : seq.computed + count]

    def get_grammar_bitmask(self, scheduler_output: Any) -> GrammarOutput | None:
        if not self._structured:
            return None
        ids = [rid for rid in scheduler_output.num_scheduled_tokens if rid in self._structured]
        if not ids:
            return None
        bitmask = self.structured_output_manager.grammar_bitmask(
            self.requests, ids, scheduler_output.scheduled_spec_decode_tokens
        )
        return GrammarOutput(ids, bitmask)

    # outputs

    def _make_stats(self, answer: Any) -> SchedulerStats:
        collector = self.kv_metrics_collector
        return SchedulerStats(
            num_running_reqs=len(self._kernel.running),
            num_waiting_reqs=self.get_request_counts()[1],
            kv_cache_usage=self._kernel.store.usage,
            prefix_cache_stats=self.kv_cache_manager.make_prefix_cache_stats(),
            connector_prefix_cache_stats=self._stats.take_external(),
            kv_cache_eviction_events=collector.drain_events() if collector is not None else [],
            spec_decoding_stats=self._stats.take_drafted(),
            kv_connector_stats=self._answers.connector_stats if answer is not None else None,
            cudagraph_stats=answer.cudagraph_stats if answer is not None else None,
        )


class VerifiedAsyncScheduler(VerifiedScheduler):
    """The same, always planning one step ahead of the tokens, in place of vLLM's `AsyncScheduler`."""

    AHEAD = True
