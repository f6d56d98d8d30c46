"""The verified scheduler on vLLM 0.16.0, as far as it differs from the one on 0.13.0: what that release reads, tells and counts.

Cited: schedule, _update_after_schedule, update_draft_token_ids and update_draft_token_ids_in_output of
v1/core/sched/scheduler.py.
Rejected: a constructor of its own (0.16.0's takes what 0.13.0's takes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar, TypeVar

from vllm.distributed.kv_events import MEDIUM_GPU, BlockStored
from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.request import RequestStatus

from vllm_lifecycle.adapters.omni.verified.experts import Experts
from vllm_lifecycle.adapters.omni.verified.sessions import Sessions
from vllm_lifecycle.adapters.vllm.verified.encoder import Encoders
from vllm_lifecycle.adapters.vllm.verified.events import CacheEvents
from vllm_lifecycle.adapters.vllm.verified.limits import COMMON, Limit, Unsupported
from vllm_lifecycle.adapters.vllm.verified.loads import Loads
from vllm_lifecycle.adapters.vllm.verified.lockstep import CACHED, HEADERS
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.adapters.vllm.verified.stops import least_first
from vllm_lifecycle.adapters.vllm.verified.v013 import Answers013
from vllm_lifecycle.adapters.vllm.verified.v013 import VerifiedScheduler as Verified013
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.lanes import Lanes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.kernel.steps import Step
from vllm_lifecycle.statemachine.kernel.store import V0_16_0 as STORE
from vllm_lifecycle.statemachine.kernel.store import StoreRules
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import V0_13_0, Limits, Rules

V0_16_0 = replace(V0_13_0, tells_table=True, returns_inputs=True)
"""As 0.13.0, but for two things: the connector hears the whole table, and encoder inputs without blocks are given back."""


class Stats016(Stats):
    """The connector's hits are counted against what the prefix cache had not, and where it has been asked at all."""

    def loads(self, seq: Seq) -> None:
        """Counted with the look-up; see `found`."""

    def found(self, seq: Seq, local: int, external: int) -> None:
        """The request goes on with so many tokens of either kind."""
        asked = len(seq.tokens) - local
        if self.external is not None and asked:
            self.external.record(num_tokens=asked, num_hits=external, preempted=seq.preemptions > 0)

    def drafted(self, drafts: int, accepted: int, invalid: int = 0) -> None:
        """`accepted` of a request's drafts were right; `invalid` ones had been ruled out by the grammar."""
        super().drafted(drafts - invalid, accepted)


class CacheEvents016(CacheEvents):
    """Events name the adapter, not only its number."""

    def stored(self, seq: Seq, first: int, last: int) -> None:
        hashes, size, lora = seq.hashes, self._size, seq.payload.lora_request
        self._events.append(
            BlockStored(
                block_hashes=[maybe_convert_block_hash(key) for key in hashes[first:last]],
                parent_block_hash=maybe_convert_block_hash(hashes[first - 1]) if first else None,
                token_ids=seq.tokens[first * size : last * size],
                block_size=size,
                lora_id=lora.adapter_id if lora else None,
                medium=MEDIUM_GPU,
                lora_name=lora.name if lora else None,
            )
        )


class _Remote(Sequence[bool]):
    """Which encoder inputs of a request the encoder-cache connector has; it is asked when, and as far as, that matters."""

    def __init__(self, connector: Any, request: Any) -> None:
        self._connector, self._features = connector, request.mm_features

    def __getitem__(self, index: Any) -> Any:
        return self._connector.has_cache_item(self._features[index].identifier)

    def __len__(self) -> int:
        return len(self._features)


class Encoders016(Encoders):
    """The encoder-cache connector is asked item by item."""

    def ask(self, connector: Any) -> None:
        """The connector that has inputs of others."""
        self._remote = lambda request: _Remote(connector, request)  # type: ignore[assignment]


class Answers016(Answers013):
    """Answers, with the outputs of 0.16.0; `sessions` are told of stops, `experts` asked then for what the output has of them."""

    sessions: Sessions
    experts: Experts | None = None
    _routed: Any = None

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        outputs = super().process(step, answer)
        for seq, told in self.sessions.closed:
            if self.kernel.seqs.get(seq.id, seq) is seq:  # nobody else would take it for an answer to himself
                outputs.setdefault(seq.payload.client_index, []).append(self.output(seq, [], told))
        self.sessions.closed.clear()
        return outputs

    def stopped(self, seq: Seq, reason: Status) -> Any:
        if self.experts is not None:
            self._routed = self.experts.of(seq)
        return None if self.sessions.stopped(seq, reason) else super().stopped(seq, reason)

    def extend_keys(self, seq: Seq) -> None:
        seq.payload.update_block_hashes()

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
        turn = self.sessions.turns.pop(seq, None)
        reason = request.status if seq.reason is not None else turn and RequestStatus[turn.reason.name]
        routed, self._routed = self._routed, None
        return EngineCoreOutput(
            request_id=seq.id,
            new_token_ids=tokens,
            new_logprobs=logprobs,
            new_prompt_logprobs_tensors=prompt_logprobs,
            pooling_output=vector,
            finish_reason=None if reason is None else RequestStatus.get_finished_reason(reason),
            stop_reason=request.stop_reason if turn is None else turn.token,
            events=request.take_events() if request.events else None,
            kv_transfer_params=told,
            trace_headers=request.trace_headers,
            num_cached_tokens=seq.cached_tokens,
            num_external_computed_tokens=0 if seq.reason is Status.FINISHED_ERROR else seq.external,
            routed_experts=routed,
            num_nans_in_logits=request.num_nans_in_logits,
        )

    def usual(self, lanes: Lanes, tokens: Sequence[list[int]]) -> list[Any]:
        headers, cached = lanes.constants[HEADERS], lanes.constants[CACHED]
        loaded = [seq.external for seq in lanes.seqs]
        return list(map(EngineCoreOutput, lanes.ids, tokens, *[repeat(None)] * 7, headers, cached, loaded))


A = TypeVar("A", bound=Answers016)


def _experts_of_parts(config: Any) -> bool:
    parallel = config.parallel_config
    parts = max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size)
    return bool(config.model_config.enable_return_routed_experts) and parts > 1


class VerifiedScheduler016(Verified013):
    """Runs inside vLLM 0.16.0 in place of its `Scheduler` (or `AsyncScheduler`, as the configuration says)."""

    RELEASE = "0.16.0"
    STORE_RULES: ClassVar[StoreRules] = STORE
    RANK = "data_parallel_index"
    STATS = Stats016
    EVENTS = CacheEvents016
    ENCODERS = Encoders016
    KERNEL = SessionKernel
    LIMITS: ClassVar[tuple[Limit, ...]] = (
        *COMMON,
        Limit(
            "routed experts in the output with context parallelism",
            _experts_of_parts,
            "leave enable_return_routed_experts off; vLLM's own scheduler does not support it either",
        ),
    )

    _answers: Answers016
    _stats: Stats016
    _kernel: SessionKernel

    def _read_drafting(self) -> None:
        super()._read_drafting()
        speculative = self.vllm_config.speculative_config
        if speculative and speculative.uses_draft_model():
            self.num_lookahead_tokens = self.num_spec_tokens

    def _assemble(self, registry: Any) -> None:
        super()._assemble(registry)
        self._world.found = self._stats.found  # type: ignore[method-assign]
        if self._world.encoder_connector is not None:
            self._world.encoders.ask(self._world.encoder_connector)  # type: ignore[attr-defined]
        measured = self.log_stats and self.observability_config.enable_mfu_metrics
        self.perf_metrics = ModelMetrics(self.vllm_config) if measured else None
        self._perf: Any = None
        if self.vllm_config.model_config.enable_return_routed_experts:
            blocks = self.kv_cache_config.num_blocks
            self._answers.experts = Experts(self.vllm_config, self._kernel.store, blocks, self.breaches)

    def make_hybrid(self, watch: Any) -> Any:
        raise Unsupported(
            "VerifiedScheduler does not support several groups of KV layers or windows on this release: "
            "leave out --scheduler-cls"
        )

    def _encoder_sizes(self, registry: Any) -> tuple[int, int]:
        self._cross = 0
        if not registry.supports_multimodal_inputs(self.vllm_config.model_config):
            return 0, 0
        budget = MultiModalBudget(self.vllm_config, registry)
        if self.is_encoder_decoder and budget.mm_max_toks_per_item:
            self._cross = budget.mm_max_toks_per_item[budget.get_modality_with_max_tokens()]
        return budget.encoder_compute_budget, budget.encoder_cache_size

    def _rules(self) -> Rules:
        return replace(V0_16_0, asynchronous=self.asynchronous)

    def _limits(self) -> Limits:
        return replace(super()._limits(), cross=self._cross)

    def _make_answers(self) -> Answers016:
        return self._answers_of(Answers016)

    def _answers_of(self, kind: type[A]) -> A:
        transfer = self.vllm_config.kv_transfer_config
        made = kind(
            self._kernel,
            self._world,
            Loads(
                self._kernel,
                self.breaches,
                transfer is None or transfer.kv_load_failure_policy == "recompute",
            ),
            self._stats,
            self.breaches,
            self.structured_output_manager,
            stop=least_first,
            model_len=self.max_model_len,
            hash_size=self.block_size,
            asynchronous=self.asynchronous,
        )
        made.sessions = self._sessions = Sessions(
            self._kernel,
            self.breaches,
            fits=self._has_room,
            keys=made.extend_keys,
            end=made.end,
            queued=self._stats.queued,
        )
        return made

    def _has_room(self, tokens: int) -> bool:
        """A prompt of so many tokens is not too long for the model, nor for the whole KV cache."""
        return tokens <= self.max_model_len and self._least(tokens) < self._kernel.store.size

    # requests and steps

    def add_request(self, request: Any) -> None:
        owner = self._kernel.seqs.get(request.request_id)
        if owner is not None and owner.reason is None and owner.payload.resumable:
            self._sessions.input(owner, request)
            return
        if any(seq.id == request.request_id and seq.payload.resumable for seq in self._answers.ended):
            return  # more input of a session whose end, in an error, its client has not heard of yet
        if request.resumable and owner is None:
            request.streaming_queue = deque()
        super().add_request(request)

    def _output(self, plan: Plan) -> Any:
        output = super()._output(plan)
        again = {seq.id for seq in plan.new if seq.id in self._before and seq.id not in self._kernel.notices}
        if again:  # vllm-omni's worker would have a session twice in its batch: who is resumed leaves first
            cached = output.scheduled_cached_reqs
            cached.resumed_req_ids = cached.resumed_req_ids | again
        output.has_structured_output_requests = any(rid in plan.tokens for rid in self._structured)
        if self.use_pp and self.asynchronous:
            output.scheduled_cached_reqs.new_token_ids = []
        return output

    def _awaits_structured(self, plan: Plan) -> bool:
        seqs = (self._kernel.seqs[rid] for rid in self._structured if rid in plan.tokens)
        return any(
            seq.computed >= len(seq.tokens) + seq.placeholders and seq.placeholders > 0 for seq in seqs
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        if self.perf_metrics is not None and self.perf_metrics.is_enabled():
            self._perf = self.perf_metrics.get_step_perf_stats_per_gpu(scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        for rid, drafts in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False):
            seq = self._kernel.seqs.get(rid)
            if seq is not None and seq.status is Status.RUNNING:
                seq.drafts = [] if seq.chunk else self._allowed(seq, drafts)

    def update_draft_token_ids_in_output(self, draft_token_ids: Any, scheduler_output: Any) -> None:
        """The drafts of a step that was planned before they were known."""
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

    def reset_encoder_cache(self) -> None:
        """All encoder outputs are forgotten."""
        self.encoder_cache_manager.reset()

    def _make_stats(self, answer: Any) -> Any:
        stats, manager = super()._make_stats(answer), self.encoder_cache_manager
        if manager.cache_size:
            stats.encoder_cache_usage = (manager.cache_size - manager.num_free_slots) / manager.cache_size
        stats.perf_stats, self._perf = self._perf, None
        return stats
