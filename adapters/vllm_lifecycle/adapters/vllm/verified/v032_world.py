"""What a pass asks of vLLM 0.32.0: the hooks that release added, and where its connectors and grammars answer differently.

Cited: schedule, _handle_blocked_waiting_request, _connector_finished and _free_request of v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_lifecycle.adapters.vllm.verified.v032_stats import Stats032
from vllm_lifecycle.adapters.vllm.verified.world import Surroundings
from vllm_lifecycle.spec.lifecycles.vocabulary import Party
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan


class Surroundings032(Surroundings):
    """The pass's `World` on vLLM 0.32.0.

    keyed    how many tokens of a request are in the prefix cache by its table
    cut      its table as far as so many tokens go; slide: blocks that its windows have left are let go of
    to_load  requests that the connector will load for, once they find room (for the statistics)
    """

    _stats: Stats032
    keyed: Callable[[Seq], int]
    cut: Callable[[Seq, int], tuple[list[int], ...]]
    slide: Callable[[Seq], None]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.to_load: set[Seq] = set()
        self._gave_way: set[str] = set()

    def arrived(self, seq: Seq) -> None:
        """The connector hears of a new request."""
        if self.connector is None:
            return
        try:
            self.connector.on_new_request(seq.payload)
        except Exception as error:
            self.doom(seq, "on_new_request", Party.CONNECTOR, error)
        wanted = seq.payload.kv_transfer_params
        if wanted and wanted.get("do_remote_prefill"):
            self.to_load.add(seq)

    def preempted(self, seq: Seq) -> None:
        super().preempted(seq)
        self._gave_way.add(seq.id)

    def take_preempted(self) -> set[str]:
        """Ids that were preempted since the last step."""
        taken, self._gave_way = self._gave_way, set()
        return taken

    def pushes(self) -> bool:
        """A connector still has something to send, so the engine must go on."""
        for connector in (self.connector, self.encoder_connector):
            try:
                if connector is not None and connector.has_pending_push_work():
                    return True
            except Exception as error:
                self._breaches.failed("has_pending_push_work", "(none)", Party.CONNECTOR, error)
        return False

    def has_item(self, name: str) -> bool:
        """The encoder connector has the item of this identifier."""
        return self.encoder_connector is not None and bool(self.encoder_connector.has_cache_item(name))

    def encoder_let_go(self, request: Any, index: int) -> None:
        """The encoder connector, if there is one, hears that a request needs an input no more."""
        if self.encoder_connector is None:
            return
        try:
            self.encoder_connector.update_state_after_free(request, index)
        except Exception as error:
            self._breaches.failed("update_state_after_free", request.request_id, Party.CONNECTOR, error)

    def last_table(self, seq: Seq) -> tuple[list[int], ...]:
        self.slide(seq)
        load = seq.receive
        whole = seq.computed if load is None or load.valid is None else load.valid
        return tuple(list(group) for group in self.cut(seq, whole))

    def match(self, seq: Seq, local: int) -> tuple[int | None, bool]:
        """A request that must not read caches asks all the same, for the connector's own books; the answer does not count."""
        found, background = super().match(seq, local)
        if seq.skip_cache and seq not in self.doomed:
            found, background = 0, False
        if background:
            self.to_load.add(seq)
        elif found is not None:
            self.to_load.discard(seq)
        return found, background

    def found(self, seq: Seq, local: int, external: int) -> None:
        """Counted when the request goes on, not at each look-up."""
        stats, request = self._stats, seq.payload
        self.to_load.discard(seq)
        if request.prefill_stats is not None and not seq.preemptions:
            request.prefill_stats.set(seq.prompt, local, external)
        stats.looked_up(seq, local)
        if stats.external is not None and len(seq.tokens) > local:
            stats.loads_of(seq, local, external, self._sources(seq, external))

    def _sources(self, seq: Seq, external: int) -> Any:
        """Where the connector found the tokens, for the statistics."""
        if not external or seq.preemptions:
            return None
        try:
            return self.connector.get_external_cache_hit_sources(seq.payload, external)
        except Exception as error:
            self._breaches.failed("get_external_cache_hit_sources", seq.id, Party.CONNECTOR, error)
            return None

    def frees_pending(self) -> bool:
        """The connector gives blocks back soon."""
        if self.connector is None:
            return False
        try:
            return bool(self.connector.has_pending_block_frees())
        except Exception as error:
            self._breaches.failed("has_pending_block_frees", "(none)", Party.CONNECTOR, error)
            return False

    def grammar(self, seq: Seq) -> str:
        """A grammar that cannot be compiled ends its request at the next output."""
        if seq in self.doomed:
            return "pending"
        wanted = seq.payload.structured_output_request
        grammar = wanted.grammar if wanted else None
        if grammar is None:
            return "pending"
        if isinstance(grammar, Exception):
            self.doom(seq, "grammar", None, grammar)
            return "pending"
        return "ready"

    def encoder_there(self, seq: Seq, computed: int) -> bool:
        """The encoder connector has brought what it promised, as far as the next tokens need it."""
        connector, request = self.encoder_connector, seq.payload
        if connector is None or not request.mm_features:
            return True
        try:
            return bool(connector.ensure_cache_available(request, computed))
        except Exception as error:
            self.doom(seq, "ensure_cache_available", Party.CONNECTOR, error)
            return False

    def encoder_take(self, seq: Seq, plan: EncoderPlan) -> None:
        """Inputs to compute and to load are entered, then what shows the same as one of them."""
        self.encoders.runs_again(seq)
        request, manager = seq.payload, self.encoders.manager
        for index in (*plan.inputs, *plan.external):
            manager.allocate(request, index)
            if self.encoder_connector is not None:
                try:
                    self.encoder_connector.update_state_after_alloc(request, index)
                except Exception as error:
                    self.doom(seq, "encoder update_state_after_alloc", Party.CONNECTOR, error)
        for index in plan.again:
            manager.check_and_update_cache(request, index)

    def admitted(self, seq: Seq) -> None:
        self._stats.scheduled(seq.payload, self.now)

    # the end of a request

    def finishing(self, seq: Seq) -> tuple[bool, Any]:
        """Both connectors are asked before the encoder's outputs go; the client is told a pair: of the KV, of the encodings."""
        request = seq.payload
        self.to_load.discard(seq)
        if request.prefill_stats is not None:
            request.prefill_stats.finalize(self.keyed(seq))
        hold, of_kv = self._hook("request_finished", seq, self.connector, lambda: self._finished(seq))
        encoder = self.encoder_connector
        encoded, of_encodings = self._hook(
            "encoder request_finished", seq, encoder, lambda: encoder.request_finished(request)
        )
        self.encoders.free(seq)
        return bool(hold or encoded), (of_kv, of_encodings)

    def _hook(
        self, name: str, seq: Seq, connector: Any, ask: Callable[[], tuple[bool, Any]]
    ) -> tuple[bool, Any]:
        if connector is None:
            return False, None
        try:
            return ask()
        except Exception as error:
            self._breaches.failed(name, seq.id, Party.CONNECTOR, error)
            return False, None

    # answers

    def encoder_answered(self, report: Any) -> None:
        """The encoder connector hears what its workers' side reports, and says whose inputs it cannot get any more."""
        connector = self.encoder_connector
        if connector is None:
            return
        try:
            if report:
                connector.update_connector_output(report)
        except Exception as error:
            self._breaches.failed("encoder update_connector_output", "(none)", Party.CONNECTOR, error)

    def unavailable(self) -> set[str]:
        """Ids of requests whose encoder inputs the encoder connector cannot get any more."""
        connector = self.encoder_connector
        if connector is None:
            return set()
        try:
            return set(connector.take_unavailable_requests())
        except Exception as error:
            self._breaches.failed("take_unavailable_requests", "(none)", Party.CONNECTOR, error)
            return set()

    def encoder_stats(self, report: Any) -> Any:
        """Statistics of the encoder connector's two sides, the workers' in their report."""
        connector = self.encoder_connector
        ask = None if connector is None else connector.get_ec_connector_stats
        stats = self._together(report.ec_connector_stats if report else None, ask)
        return stats.data if stats else None

    def connector_stats(self, report: Any) -> Any:
        connector = self.connector
        ask = None if connector is None else connector.get_kv_connector_stats
        stats = self._together(report.kv_connector_stats if report else None, ask)
        return stats.to_dict() if stats else None

    def _together(self, workers: Any, ask: Callable[[], Any] | None) -> Any:
        """What the workers' side told, with what the scheduler's side tells."""
        if ask is None:
            return workers
        try:
            own = ask()
            if own is None or own.is_empty():
                return workers
            return own if workers is None else workers.aggregate(own)
        except Exception as error:
            self._breaches.failed("connector statistics", "(none)", Party.CONNECTOR, error)
            return workers
