"""The part of vLLM's `SchedulerInterface` that does not depend on the release: a scheduler on the custody kernel.

The kernel decides what may be done, the pass what is done, and this class translates: a plan becomes a `SchedulerOutput`, a
worker's answer goes to `Answers`, and everything that others read from a scheduler is a view of the kernel's state (views.py).
Rule: no order of calls and no answer of a third party raises out of `schedule` or `update_from_output`; what was not in order
is in `breaches`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from vllm.distributed.kv_events import EventPublisherFactory, KVEventBatch
from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import RequestStatus

from vllm_lifecycle.adapters.vllm.verified import assembly, handmade, lockstep, settings
from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches, logger
from vllm_lifecycle.adapters.vllm.verified.encoder import Encoders
from vllm_lifecycle.adapters.vllm.verified.events import CacheEvents, CacheWatch
from vllm_lifecycle.adapters.vllm.verified.limits import COMMON, Limit, check
from vllm_lifecycle.adapters.vllm.verified.lockstep import Before, awaits_before
from vllm_lifecycle.adapters.vllm.verified.readings import Readings
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.adapters.vllm.verified.update import Answers
from vllm_lifecycle.adapters.vllm.verified.views import Names, Requests, Running, Waiting, adopt
from vllm_lifecycle.adapters.vllm.verified.world import Surroundings
from vllm_lifecycle.spec.lifecycles.vocabulary import GONE, Party, Status
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step
from vllm_lifecycle.statemachine.kernel.store import StoreRules
from vllm_lifecycle.statemachine.policies.policy import Policy
from vllm_lifecycle.statemachine.scheduling.loop import Scheduling
from vllm_lifecycle.statemachine.scheduling.plan import Plan

STEP = "_lifecycle_step"
"""The attribute of a `SchedulerOutput` with the number of its step; it travels with the output and means nothing to workers."""


class Verified(Readings, SchedulerInterface):  # type: ignore[misc]
    """A scheduler on the custody kernel; a release derives from it and makes the outputs."""

    RELEASE: ClassVar[str]
    LIMITS: ClassVar[tuple[Limit, ...]] = COMMON
    AHEAD: ClassVar[bool | None] = None
    """Plans a step before the last one's tokens are known; None: as the configuration says."""
    RANK: ClassVar[str] = "data_parallel_rank"
    """The number that tells this scheduler from others that publish cache events."""
    APART: ClassVar[bool] = True
    """Waiting requests that hold blocks have a queue of their own, which is served first."""
    STATS: ClassVar[type[Stats]] = Stats
    WORLD: ClassVar[type[Surroundings]] = Surroundings
    ENCODERS: ClassVar[type[Encoders]] = Encoders
    EVENTS: ClassVar[type[CacheEvents]] = CacheEvents
    WATCH: ClassVar[type[CacheWatch]] = CacheWatch
    OWN_STORE: ClassVar[tuple[type[Any], ...]] = ()
    """Kinds of layers that the store of our own serves; a subclass of them has a manager of its own."""
    STORE_RULES: ClassVar[StoreRules]
    KERNEL: type[Kernel] = Kernel
    POLICY: ClassVar[type[Policy] | None] = None
    """The policy to follow; None: as the settings or the configuration say."""

    def _build(
        self,
        config: Any,
        cache: Any,
        manager: Any,
        block_size: int,
        registry: Any,
        finished: bool,
        log_stats: bool,
    ) -> None:
        """Everything that the constructors of all releases do; raises limits.Unsupported."""
        check(config, self.LIMITS)
        self.vllm_config, self.kv_cache_config = config, cache
        self.scheduler_config, self.cache_config = config.scheduler_config, config.cache_config
        self.lora_config, self.parallel_config = config.lora_config, config.parallel_config
        self.kv_events_config, self.observability_config = (
            config.kv_events_config,
            config.observability_config,
        )
        self.structured_output_manager = manager
        self.log_stats = log_stats
        self.block_size = block_size
        self.is_encoder_decoder = config.model_config.is_encoder_decoder
        self.max_model_len = config.model_config.max_model_len
        self.max_num_running_reqs = config.scheduler_config.max_num_seqs
        self.max_num_scheduled_tokens = config.scheduler_config.max_num_batched_tokens
        self.enable_kv_cache_events = assembly.publishes(config)
        self.policy = SchedulingPolicy(config.scheduler_config.policy)
        self.asynchronous = (
            bool(config.scheduler_config.async_scheduling) if self.AHEAD is None else self.AHEAD
        )
        self._read_drafting()
        self.use_pp = config.parallel_config.pipeline_parallel_size > 1
        self.dcp_world_size = config.parallel_config.decode_context_parallel_size
        self.pcp_world_size = config.parallel_config.prefill_context_parallel_size
        self.finished_req_ids_dict: dict[int, set[str]] | None = {} if finished else None
        self._before = Before()
        self.kv_event_publisher = EventPublisherFactory.create(
            config.kv_events_config, getattr(config.parallel_config, self.RANK)
        )
        metrics = config.observability_config.kv_cache_metrics
        self.kv_metrics_collector = (
            KVCacheMetricsCollector(config.observability_config.kv_cache_metrics_sample) if metrics else None
        )
        self._names = Names(self.RELEASE, RequestStatus)
        self._structured: set[str] = set()
        self.breaches = Breaches()
        self._assemble(registry)

    def _read_drafting(self) -> None:
        """How many drafts there are, and what the drafter needs."""
        speculative = self.vllm_config.speculative_config
        self.use_eagle = bool(speculative and speculative.use_eagle())
        self.num_spec_tokens = speculative.num_speculative_tokens if speculative else 0
        self.num_lookahead_tokens = self.num_spec_tokens if self.use_eagle else 0

    def _slots(self) -> int:
        """How many requests may run."""
        most: int = self.max_num_running_reqs
        return most

    def own_store(self) -> bool:
        """The block store of our own serves this model; else vLLM's manager does."""
        groups = self.kv_cache_config.kv_cache_groups
        return len(groups) == 1 and type(groups[0].kv_cache_spec) in self.OWN_STORE

    def _assemble(self, registry: Any) -> None:
        connector = assembly.connector(self.vllm_config, self.kv_cache_config)
        self._stats = self.STATS(
            self.log_stats,
            connector is not None,
            self.num_spec_tokens,
            bool(self.cache_config.enable_prefix_caching),
        )
        self.max_num_encoder_input_tokens, encoder_size = self._encoder_sizes(registry)
        parts = assembly.store(self, self._stats)
        store, self._least = parts.store, parts.least
        policy = self.POLICY() if self.POLICY is not None else settings.policy(self.policy.value)
        self._deadline = settings.deadline()
        self._kernel = self.KERNEL(
            store,
            policy.queue(),
            slots=self._slots(),
            finishing=self._finishing,
            holding=policy.queue() if self.APART else None,
        )
        self._names.steps = self._kernel.steps
        if hasattr(store, "later"):
            store.later = lambda seq, hold: self._kernel.steps.release_after(seq.last_step, hold)
        self.kv_cache_manager = parts.view(lambda: self._kernel.seqs)
        encoder_connector = assembly.encoder_connector(self.vllm_config)
        encoders = assembly.encoders(self, encoder_size, encoder_connector, self._kernel.steps.touches)
        self._world = self.WORLD(
            connector,
            encoder_connector,
            encoders,
            self._stats,
            self.breaches,
            store.table,
            parts.blocks,
        )
        self._pass = Scheduling(self._kernel, policy, self._rules(), self._limits(), self._world)
        self._answers = self._make_answers()
        self._kernel.columns = self._columns(store)
        self.requests = Requests(lambda: self._kernel, self._names)
        self.waiting = Waiting(lambda: self._kernel.waiting)
        self._running = Running(lambda: self._kernel.running)

    def _columns(self, store: Any) -> Columns | None:
        """The lockstep decoders; None where rows have drafts, or stages that alternate, or blocks are vLLM's."""
        if (
            not isinstance(store, PagedStore)
            or self.use_pp
            or self.num_spec_tokens
            or (self.asynchronous and self.enable_kv_cache_events)  # events in the order of the rows
        ):
            return None
        asked = lockstep.Requests(self._ends, self._answers.extend_keys)
        return Columns(
            store,
            self._kernel.steps,
            asked,
            ahead=self.asynchronous,
            model_len=self.max_model_len,
            prompt=self._world.connector is not None,
        )

    # what a release says

    @abstractmethod
    def _ends(self, request: Any) -> tuple[Any, Sequence[int]]:
        """The end token of a request (None: none), and its stop tokens."""

    @abstractmethod
    def _encoder_sizes(self, registry: Any) -> tuple[int, int]:
        """Embeddings that a step may compute, and that the encoder cache has room for."""

    @abstractmethod
    def _rules(self) -> Any:
        """How the release decides."""

    @abstractmethod
    def _limits(self) -> Any:
        """The sizes of this deployment."""

    @abstractmethod
    def _make_answers(self) -> Answers:
        """What processes the workers' answers."""

    @abstractmethod
    def _output(self, plan: Plan) -> Any:
        """The `SchedulerOutput` of a plan."""

    # requests come and go

    def add_request(self, request: Any) -> None:
        owner = self._kernel.seqs.get(request.request_id)
        if owner is not None:
            self.breaches.count(Party.CLIENT, "add_request", f"the id {request.request_id} is in use")
            if (
                owner.reason is not None
            ):  # its client has heard the last of it, and would take this for a new request
                self._answers.refuse(adopt(request, self._names))
            return
        seq = adopt(request, self._names)
        try:
            self._kernel.add(seq)
        except Refused as refusal:
            self.breaches.refused(refusal)
            return
        if request.structured_output_request is not None:
            self._structured.add(seq.id)
        self._stats.queued(request)
        if self._least(len(seq.tokens)) > self._kernel.store.size - 1:
            logger.warning("Request %s is larger than the whole KV cache: it ends with an error", seq.id)
            self._answers.end(seq)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        ids = (request_ids,) if isinstance(request_ids, str) else set(request_ids)
        self._finish(ids, finished_status)

    def _finish(self, ids: Iterable[str], finished_status: Any) -> list[Any]:
        """These requests end; unknown ids, and what has ended, are left alone. Gives the requests that ended."""
        reason = self._names.ours[finished_status]
        ended = []
        for rid in ids:
            seq = self._kernel.seqs.get(rid)
            if seq is not None and seq.status not in GONE:
                self._kernel.finish(seq, reason)
                ended.append(seq.payload)
        return ended

    def _finishing(self, seq: Seq) -> tuple[bool, Any]:
        """The request ends: connectors, encoder cache and the clients' sets hear of it."""
        self._structured.discard(seq.id)
        answer = self._world.finishing(seq)
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict.setdefault(seq.payload.client_index, set()).add(seq.id)
        return answer

    # steps

    def schedule(self) -> Any:
        self._world.begin()
        if self._deadline is not None:
            settings.give_up(self._kernel, self._deadline)
        plan = self._pass.plan()
        if plan.failed:
            self._answers.ended += plan.failed
        output = self._output(plan)
        kernel, before, members = self._kernel, self._before, plan.members
        before.tokens, before.members = plan.tokens, members
        self._world.describe(output)
        rows = plan.rows_of(kernel.seqs) if len(plan.tokens) > len(members) else []
        setattr(output, STEP, kernel.dispatch(rows, members).number)
        if self.max_num_encoder_input_tokens:
            for row in rows:
                self._world.encoders.dispatched(row)
        if self.asynchronous:
            output.pending_structured_output_tokens = self._awaits_structured(plan)
        if rows:
            self._pass.settle(plan)
        return output

    def _awaits_structured(self, plan: Plan) -> bool:
        """Some row's grammar depends on tokens that are still to come."""
        seqs = self._kernel.seqs
        return any(awaits_before(seqs[rid]) for rid in self._structured if rid in plan.tokens)

    def _step_of(self, output: Any) -> Step | None:
        number = getattr(output, STEP, None)
        if number is not None:
            return self._kernel.steps.outstanding.get(number)
        step = handmade.step_of(self._kernel, output, ahead=self.asynchronous)
        setattr(output, STEP, 0 if step is None else step.number)
        return step

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        outputs = self._answers.process(self._step_of(scheduler_output), model_runner_output)
        if self.enable_kv_cache_events or self._world.connector is not None:
            self._publish()
        made = {}
        for client, outs in outputs.items():
            made[client] = EngineCoreOutputs(outputs=outs)
        finished = self.finished_req_ids_dict
        if finished:
            for client, ids in finished.items():
                if client in made:
                    made[client].finished_requests = ids
                else:
                    made[client] = EngineCoreOutputs(outputs=[], finished_requests=ids)
            finished.clear()
        if self.log_stats:
            stats = self._make_stats(model_runner_output)
            first = next(iter(made.values()), None)
            if first is None:
                first = made[0] = EngineCoreOutputs(outputs=[])
            first.scheduler_stats = stats
        return made

    def _publish(self) -> None:
        """KV cache events of the store and of the connector go to who listens."""
        events = self._kernel.store.take_events()
        if self._world.connector is not None:
            events = [*events, *self._world.connector_events()]
        if events:
            self.kv_event_publisher.publish(KVEventBatch(ts=assembly.now(), events=events))

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        for rid, drafts in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False):
            seq = self._kernel.seqs.get(rid)
            if seq is not None and seq.status is Status.RUNNING:
                seq.drafts = self._allowed(seq, drafts)

    def _allowed(self, seq: Seq, drafts: list[int]) -> list[int]:
        """The drafts that the request's grammar takes."""
        if seq.payload.structured_output_request is None:
            return drafts
        try:
            if self.structured_output_manager.should_advance(seq.payload):
                taken: list[int] = seq.payload.structured_output_request.grammar.validate_tokens(drafts)
                return taken
        except Exception as error:
            self._world.doom(seq, "validate_tokens", None, error)
            return []
        return drafts

    # resets

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        if reset_running_requests:
            self._world.begin()
            for seq in self._kernel.running[::-1]:
                self._world.encoder_free(seq)  # while it is known which step still reads what it has
            for seq in self._kernel.preempt_all():
                self._world.preempted(seq)
            self._before = Before()
            done = self._kernel.forget_cache() or not any(self._kernel.loading())
        else:
            done = self._kernel.reset()
        if reset_connector:
            done = self.reset_connector_cache() and done
        return done

    def reset_connector_cache(self) -> bool:
        """The connector forgets what it has cached; False when it does not, or when there is none."""
        if self._world.connector is None:
            logger.warning("A reset of the KV connector was asked for, and there is no connector")
            return False
        if self._world.reset_connector() is False:
            return False
        if self._stats.external is not None:
            self._stats.external.reset = True
        return True

    # statistics and the end

    @abstractmethod
    def _make_stats(self, answer: Any) -> Any:
        """The `SchedulerStats` of an answer (None: of no answer)."""

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        return self._make_stats(None) if self.log_stats else None

    def shutdown(self) -> None:
        if self.kv_event_publisher:
            self.kv_event_publisher.shutdown()
        if self._world.connector is not None:
            self._world.connector.shutdown()
