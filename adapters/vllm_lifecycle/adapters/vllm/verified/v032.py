"""The verified scheduler on vLLM 0.32.0: its constructor, what it reads of the configuration, and the calls that release added.

Rule: what vLLM 0.32.0 can be asked for and this scheduler does not do is in limits032.py, refused in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import GrammarOutput, KVConnectorBlockState
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.metrics.stats import RequestSpecDecodeMetrics, SchedulerStats
from vllm.v1.structured_output.utils import strip_speculative_padding

from vllm_lifecycle.adapters.vllm.verified import limits032
from vllm_lifecycle.adapters.vllm.verified import v032_parts as parts
from vllm_lifecycle.adapters.vllm.verified.base import Verified
from vllm_lifecycle.adapters.vllm.verified.breaches import logger
from vllm_lifecycle.adapters.vllm.verified.limits import Limit, check
from vllm_lifecycle.adapters.vllm.verified.limits032 import CACHE, CONFIG, REQUEST
from vllm_lifecycle.adapters.vllm.verified.lockstep import awaits_before
from vllm_lifecycle.adapters.vllm.verified.update import Answers
from vllm_lifecycle.adapters.vllm.verified.v032_encoder import Encoders032
from vllm_lifecycle.adapters.vllm.verified.v032_events import CacheEvents032, CacheWatch032
from vllm_lifecycle.adapters.vllm.verified.v032_hybrid import HybridStore032
from vllm_lifecycle.adapters.vllm.verified.v032_outputs import Outputs
from vllm_lifecycle.adapters.vllm.verified.v032_readings import Readings032
from vllm_lifecycle.adapters.vllm.verified.v032_stats import Stats032, fetches, report
from vllm_lifecycle.adapters.vllm.verified.v032_update import Answers032, Loads032, ends_first
from vllm_lifecycle.adapters.vllm.verified.v032_world import Surroundings032
from vllm_lifecycle.adapters.vllm.verified.views import Waiting
from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import V0_32_0 as STORE
from vllm_lifecycle.statemachine.kernel.store import StoreRules
from vllm_lifecycle.statemachine.scheduling.loop import HOLDS_NEW, RUNS, STOPS
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import V0_32_0, Limits, Rules

PAUSES = {PauseState.UNPAUSED: RUNS, PauseState.PAUSED_NEW: HOLDS_NEW, PauseState.PAUSED_ALL: STOPS}
"""How much of the pass each of vLLM's pause states leaves."""


class VerifiedScheduler(Readings032, Verified):
    """Runs inside vLLM 0.32.0 in place of its `Scheduler` and its `AsyncScheduler`, as the configuration says."""

    RELEASE = "0.32.0"
    RANK = "data_parallel_index"
    LIMITS: ClassVar[tuple[Limit, ...]] = CONFIG
    APART = True
    STATS = Stats032
    WORLD = Surroundings032
    ENCODERS = Encoders032
    EVENTS = CacheEvents032
    WATCH = CacheWatch032
    STORE_RULES: ClassVar[StoreRules] = STORE
    REFUSES: ClassVar[tuple[str, ...]] = ("sessions",)
    """What of the features that the explorer plays a single request is refused (see limits032.REQUEST)."""
    OWN_STORE: ClassVar[tuple[type[Any], ...]] = (FullAttentionSpec, MLAAttentionSpec)

    _world: Surroundings032
    _stats: Stats032
    _answers: Answers032

    def __init__(
        self,
        vllm_config: Any,
        kv_cache_config: Any,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        check(kv_cache_config, CACHE)
        self.hash_block_size = block_size if hash_block_size is None else hash_block_size
        self.current_step = 0
        self.deferred_waiting: set[Any] = set()
        self._build(
            vllm_config,
            kv_cache_config,
            structured_output_manager,
            block_size,
            mm_registry,
            include_finished_set,
            log_stats,
        )

    def _read_drafting(self) -> None:
        config = self.vllm_config
        speculative = config.speculative_config
        scheduler = config.scheduler_config
        self.use_eagle = bool(speculative and speculative.use_eagle_block_drop())
        self.num_spec_tokens = config.num_speculative_tokens
        self.num_lookahead_tokens = config.num_lookahead_tokens
        self.num_prefill_lookahead = config.num_prefill_lookahead_tokens
        self.num_sampled_tokens_per_step = 0 if config.model_config.runner_type == "pooling" else 1
        self.max_num_active_reqs = scheduler.max_num_active_seqs or scheduler.max_num_seqs
        self.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens
        self.num_waiting_for_streaming_input = 0

    def _slots(self) -> int:
        most: int = self.max_num_active_reqs
        return most

    def own_store(self) -> bool:
        transfer = self.vllm_config.kv_transfer_config
        return (
            super().own_store()
            and self.hash_block_size == self.block_size
            and not self.kv_cache_config.needs_kv_cache_zeroing
            and (transfer is None or not parts.wants_pool(transfer))
        )

    def make_hybrid(self, watch: Any) -> Any:
        """The store for models and connectors that our own does not serve: vLLM's manager."""
        return HybridStore032(parts.manager(self), self.max_model_len, watch)

    def _assemble(self, registry: Any) -> None:
        super()._assemble(registry)
        config, world, store = self.vllm_config, self._world, self._kernel.store
        observed = self.observability_config
        self._outputs = Outputs(
            second_runner=bool(config.use_v2_model_runner),
            tells_tokens=self.use_pp and not self.asynchronous,
            mrope=bool(config.model_config.uses_mrope),
            drafts=self.num_spec_tokens,
            counts_inputs=self.log_stats and observed.enable_logging_iteration_details,
        )
        self.kv_holding_waiting = Waiting(lambda: self._kernel.holding)
        self._counts_in_flight = self._names.counted = isinstance(store, HybridStore032)
        world.build = lambda connector, output: self._build_kv_connector_meta(connector, output)
        parts.connect(world, store, self.kv_cache_manager, self.kv_cache_config)
        self.perf_metrics = ModelMetrics(config) if self.log_stats and observed.enable_mfu_metrics else None
        self._perf: Any = None

    def _encoder_sizes(self, registry: Any) -> tuple[int, int]:
        if not self.vllm_config.model_config.supports_multimodal_inputs:
            return 0, 0
        budget = MultiModalBudget(self.vllm_config, registry)
        return budget.encoder_compute_budget, budget.encoder_cache_size

    def _ends(self, request: Any) -> tuple[Any, Sequence[int]]:
        params = request.sampling_params
        return params.eos_token_id, params.stop_token_ids or ()

    def _columns(self, store: Any) -> Columns | None:
        return None if self._answers.masks else super()._columns(store)

    def _rules(self) -> Rules:
        return replace(V0_32_0, asynchronous=self.asynchronous)

    def _limits(self) -> Limits:
        return parts.limits(self)

    def _make_answers(self) -> Answers:
        transfer = self.vllm_config.kv_transfer_config
        recompute = transfer is None or transfer.kv_load_failure_policy == "recompute"
        answers = Answers032(
            self._kernel,
            self._world,
            Loads032(self._kernel, self.breaches, recompute),
            self._stats,
            self.breaches,
            self.structured_output_manager,
            stop=ends_first,
            model_len=self.max_model_len,
            hash_size=self.hash_block_size,
            asynchronous=self.asynchronous,
        )
        answers.masks = bool(self.vllm_config.model_config.return_sampling_mask)
        answers.detailed = self.observability_config.per_request_spec_decode_metrics == "detailed"
        return answers

    # requests come and go

    def add_request(self, request: Any) -> None:
        asked = next((limit for limit in REQUEST if limit.asked(request)), None)
        super().add_request(request)
        seq: Seq | None = getattr(request, "_seq", None)
        if seq is None or self._kernel.seqs.get(seq.id) is not seq:
            return
        if asked is not None:
            logger.error("Request %s asks for %s: %s", seq.id, asked.feature, asked.instead)
            self._answers.end(seq)
            return
        if self.observability_config.per_request_spec_decode_metrics != "none":
            request.spec_decode_metrics = RequestSpecDecodeMetrics.new(self.num_spec_tokens)
        if seq.status is Status.WAITING_FOR_GRAMMAR:
            self.deferred_waiting.add(request)
        self._world.arrived(seq)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: Any) -> list[Any]:
        if request_ids is None:
            return self._finish(list(self._kernel.seqs), finished_status)
        return self._finish(
            (request_ids,) if isinstance(request_ids, str) else set(request_ids), finished_status
        )

    def _finishing(self, seq: Seq) -> tuple[bool, Any]:
        self.deferred_waiting.discard(seq.payload)
        return super()._finishing(seq)

    # steps

    def schedule(self, throttle_prefills: bool = False) -> Any:
        self.current_step += 1
        if throttle_prefills:  # only with an interval that limits032 refuses
            self.breaches.count(Party.CLIENT, "schedule", "prefills are not held back: all are scheduled")
        output = super().schedule()
        if self._world.connector is not None:
            output.kv_connector_block_state = None
        if self._counts_in_flight:
            for rid, tokens in output.num_scheduled_tokens.items():
                self._kernel.seqs[rid].payload.num_in_flight_tokens += tokens
        if self._structured:
            seqs, tokens = self._kernel.seqs, output.num_scheduled_tokens
            output.has_structured_output_requests = any(
                rid in tokens and not seqs[rid].chunk for rid in self._structured
            )
        return output

    def _output(self, plan: Plan) -> Any:
        world = self._world
        for seq in plan.skipped:
            self.deferred_waiting.add(seq.payload)
        for seq in (*plan.new, *plan.resumed):
            self.deferred_waiting.discard(seq.payload)
        output = self._outputs.make(
            plan,
            before=self._before,
            preempted=world.take_preempted(),
            finished=self._kernel.notices,
            encoder_cache=self.encoder_cache_manager if self.max_num_encoder_input_tokens else None,
        )
        if world.connector is not None:
            output.kv_connector_block_state = KVConnectorBlockState(
                req_ids=set(plan.tokens),
                resolve_block_ids=self.kv_cache_manager.get_block_ids,
                boundary_state_offloads={},
            )
        store = self._kernel.store
        if isinstance(store, HybridStore032):
            output.new_block_ids_to_zero = (
                store.take_new() if self.kv_cache_config.needs_kv_cache_zeroing else None
            )
        return output

    def _awaits_structured(self, plan: Plan) -> bool:
        seqs = self._kernel.seqs
        rows = (seqs[rid] for rid in self._structured if rid in plan.tokens)
        return any(
            awaits_before(seq)
            and (seq.lockstep is not None or seq.computed >= len(seq.tokens) + seq.placeholders)
            for seq in rows
        )

    def get_grammar_bitmask(self, scheduler_output: Any) -> GrammarOutput | None:
        if not scheduler_output.has_structured_output_requests:
            return None
        seqs, asked = self._kernel.seqs, self._structured
        ids = [rid for rid in scheduler_output.num_scheduled_tokens if rid in asked and not seqs[rid].chunk]
        if not ids:
            return None
        drafts = scheduler_output.scheduled_spec_decode_tokens
        bitmask = self.structured_output_manager.grammar_bitmask(self.requests, ids, drafts)
        return GrammarOutput(
            ids, bitmask, [len(strip_speculative_padding(drafts.get(rid, []))) for rid in ids]
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        self._answers.invalid = scheduler_output.num_invalid_spec_tokens or {}
        step = self._step_of(scheduler_output) if self._counts_in_flight else None
        for row in step.rows if step is not None else ():
            row.seq.payload.num_in_flight_tokens -= row.tokens
        if self.perf_metrics is not None and self.perf_metrics.is_enabled():
            self._perf = self.perf_metrics.get_step_perf_stats_per_gpu(scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        for rid, drafts in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False):
            seq = self._kernel.seqs.get(rid)
            if seq is not None and seq.status is Status.RUNNING:
                seq.drafts = [] if seq.chunk else self._allowed(seq, drafts)

    def update_draft_token_ids_in_output(self, draft_token_ids: Any, scheduler_output: Any) -> None:
        invalid: dict[str, int] = {}
        ridden = scheduler_output.scheduled_spec_decode_tokens
        for rid, drafts in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False):
            seq, places = self._kernel.seqs.get(rid), len(ridden.get(rid, ()))
            if seq is None or seq.reason is not None or not places:
                continue
            allowed = self._allowed(seq, drafts[:places])
            missing = places - len(allowed)
            if missing:
                invalid[rid] = missing
            ridden[rid] = [*allowed, *[-1] * missing]
        scheduler_output.num_invalid_spec_tokens = invalid

    def _allowed(self, seq: Seq, drafts: list[int]) -> list[int]:
        if seq.payload.structured_output_request is None:
            return drafts
        try:
            taken: list[int] = self.structured_output_manager.validate_tokens(seq.payload, drafts)
        except Exception as error:
            self._world.doom(seq, "validate_tokens", None, error)
            return []
        return taken

    # counts, pauses, resets

    def get_request_counts(self) -> tuple[int, int]:
        running = len(self._kernel.running)
        return running, self._kernel.unfinished - running

    def get_num_unfinished_requests(self) -> int:
        kernel, paused = self._kernel, self._pass.paused
        if paused == STOPS:
            return 0
        return len(kernel.running) + len(kernel.holding) if paused == HOLDS_NEW else kernel.unfinished

    def has_requests(self) -> bool:
        return super().has_requests() or self._world.pushes()

    def get_kv_cache_usage(self) -> float:
        return self._kernel.store.usage

    @property
    def pause_state(self) -> PauseState:
        """How much is paused."""
        return PauseState(self._pass.paused)

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._pass.paused = PAUSES[pause_state]

    def reset_connector_cache(self) -> bool:
        return True if self._world.connector is None else super().reset_connector_cache()

    def reset_encoder_cache(self) -> None:
        self.encoder_cache_manager.reset()

    # outputs

    def _make_stats(self, answer: Any) -> SchedulerStats:
        perf, self._perf = self._perf, None
        transfers = self._answers.transfer_stats if answer is not None else (None, None)
        return report(self, self._stats, transfers, answer, perf)

    @property
    def fetches(self) -> dict[str, int]:
        """Requests with a load in the background, by how far it is."""
        return fetches(self._kernel, len(self._world.to_load))

    def get_ec_connector(self) -> Any:
        return self._world.encoder_connector

    def get_kv_event_publisher_config(self) -> Any:
        return self.kv_event_publisher.get_publisher_config()

    def shutdown(self) -> None:
        super().shutdown()
        if self._world.encoder_connector is not None:
            self._world.encoder_connector.shutdown()


class VerifiedAsyncScheduler(VerifiedScheduler):
    """The same, always planning one step ahead of the tokens, in place of vLLM's `AsyncScheduler`."""

    AHEAD = True
    LIMITS = limits032.AHEAD
