"""What a pass asks of vLLM: connector, grammars, encoder cache. A hook of a third party that raises costs its own request only.

Rule: nothing raises into the pass. A request whose hook failed is `doomed`: the pass gets a harmless answer, and the request
ends with an error when the next output is processed. Answers that break the connector's contract are bent to what is possible
and counted against it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.v1.core.kv_cache_manager import KVCacheBlocks

from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches
from vllm_lifecycle.adapters.vllm.verified.encoder import Encoders
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.spec.lifecycles.vocabulary import Party
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan

INPUTS = "encoder inputs"
"""What went wrong when the encoder cache could not plan a request's inputs."""


def build_meta(connector: Any, output: Any) -> Any:
    """What a connector has for its workers' side in this step."""
    return connector.build_connector_meta(output)


class Surroundings:
    """The pass's `World` on a real vLLM.

    doomed   requests that a failing hook ends, and why
    now      when the pass began (monotonic seconds)
    build    makes what the KV connector has for its workers' side, of the connector and the output
    """

    build: Callable[[Any, Any], Any] = staticmethod(build_meta)

    def __init__(
        self,
        connector: Any,
        encoder_connector: Any,
        encoders: Encoders,
        stats: Stats,
        breaches: Breaches,
        table: Callable[[Seq], tuple[list[int], ...]],
        blocks: Callable[[tuple[list[int], ...]], KVCacheBlocks],
    ) -> None:
        self.connector = connector
        self.encoder_connector = encoder_connector
        self.encoders = encoders
        self.doomed: dict[Seq, str] = {}
        self.now = 0.0
        self._stats = stats
        self._breaches = breaches
        self._table = table
        self.blocks = blocks

    @property
    def connected(self) -> bool:
        return self.connector is not None

    def begin(self) -> None:
        """A pass begins."""
        self.now = monotonic()

    def doom(self, seq: Seq, hook: str, party: Party | None, error: Exception) -> None:
        """A hook failed for this request: it ends at the next output."""
        self.doomed[seq] = hook
        self._breaches.failed(hook, seq.id, party, error)

    def match(self, seq: Seq, local: int) -> tuple[int | None, bool]:
        if seq in self.doomed:
            return None, False
        try:
            external, background = self.connector.get_num_new_matched_tokens(seq.payload, local)
        except Exception as error:
            self.doom(seq, "get_num_new_matched_tokens", Party.CONNECTOR, error)
            return None, False
        if external is None:
            return None, False
        most = len(seq.tokens) - local
        if external < 0 or external > most:
            self._breaches.count(
                Party.CONNECTOR, "match", f"{seq.id}: {external} tokens matched where at most {most} are left"
            )
            external = min(max(0, external), most)
        return external, bool(background and external)

    def found(self, seq: Seq, local: int, external: int) -> None:
        """Nothing to count: look-ups were counted when they were made."""

    def frees_pending(self) -> bool:
        """No connector of this release says so."""
        return False

    def encoder_there(self, seq: Seq, computed: int) -> bool:
        """Encoder inputs are loaded within the step that needs them."""
        return True

    def allocated(self, seq: Seq, table: tuple[list[int], ...], external: int) -> None:
        try:
            self.connector.update_state_after_alloc(seq.payload, self.blocks(table), external)
        except Exception as error:
            self.doom(seq, "update_state_after_alloc", Party.CONNECTOR, error)

    def grammar(self, seq: Seq) -> str:
        try:
            wanted = seq.payload.structured_output_request
            return "ready" if wanted and wanted.grammar else "pending"
        except Exception as error:
            self._breaches.failed("grammar", seq.id, None, error)
            return "failed"

    def has_encoder(self, seq: Seq) -> bool:
        return bool(seq.payload.has_encoder_inputs)

    def encoder_plan(self, seq: Seq, computed: int, new: int, budget: int) -> EncoderPlan:
        try:
            return self.encoders.plan(seq, computed, new, budget)
        except Exception as error:
            self.doom(seq, INPUTS, None, error)
            return EncoderPlan([], 0, budget, [])

    def encoder_take(self, seq: Seq, plan: EncoderPlan) -> None:
        self.encoders.runs_again(seq)
        request = seq.payload
        for index in plan.inputs:
            self.encoders.manager.allocate(request, index)
        for index in plan.external:
            self.encoders.manager.allocate(request, index)
            try:
                self.encoder_connector.update_state_after_alloc(request, index)
            except Exception as error:
                self.doom(seq, "encoder update_state_after_alloc", Party.CONNECTOR, error)

    def encoder_size(self, seq: Seq, inputs: list[int]) -> int:
        return self.encoders.size(seq, inputs)

    def encoder_free(self, seq: Seq) -> None:
        self.encoders.free(seq)

    def admitted(self, seq: Seq) -> None:
        self._stats.loads(seq)
        self._stats.scheduled(seq.payload, self.now)

    def preempted(self, seq: Seq) -> None:
        self._stats.preempted(seq.payload, self.now)

    # the end of a request

    def finishing(self, seq: Seq) -> tuple[bool, Any]:
        """The connectors' hooks at the end of a request: are its blocks sent first, and what its client is told."""
        hold, told = False, None
        if self.connector is not None:
            try:
                hold, told = self._finished(seq)
            except Exception as error:
                self._breaches.failed("request_finished", seq.id, Party.CONNECTOR, error)
        self.encoders.free(seq)
        return bool(hold), told

    def last_table(self, seq: Seq) -> tuple[list[int], ...]:
        """The blocks that the connector may send when the request has ended."""
        return tuple(list(group) for group in self._table(seq))

    def _finished(self, seq: Seq) -> tuple[bool, Any]:
        table = self.last_table(seq)
        if isinstance(self.connector, SupportsHMA):
            answer: tuple[bool, Any] = self.connector.request_finished_all_groups(seq.payload, table)
        else:
            answer = self.connector.request_finished(seq.payload, table[0])
        return answer

    # the connectors' part of a step

    def describe(self, output: Any) -> None:
        """The connectors put what the workers' side is to do into the step's output."""
        if self.connector is not None:
            output.kv_connector_metadata = self._meta(self.connector, output, self.build)
        if self.encoder_connector is not None:
            output.ec_connector_metadata = self._meta(self.encoder_connector, output, build_meta)

    def _meta(self, connector: Any, output: Any, build: Callable[[Any, Any], Any]) -> Any:
        try:
            return build(connector, output)
        except Exception as error:
            self._breaches.failed("build_connector_meta", "(all of a step)", Party.CONNECTOR, error)
            return None

    def connector_events(self) -> list[Any]:
        """KV cache events of the connector since the last time."""
        try:
            return list(self.connector.take_events() or ())
        except Exception as error:
            self._breaches.failed("take_events", "(none)", Party.CONNECTOR, error)
            return []

    def connector_stats(self, report: Any) -> Any:
        """What the connector's two sides have counted, the workers' in their report; None for nothing."""
        stats = report.kv_connector_stats if report else None
        if not stats:
            return None
        if self.connector is not None:
            try:
                ours = self.connector.get_kv_connector_stats()
                stats = stats.aggregate(ours) if ours else stats
            except Exception as error:
                self._breaches.failed("get_kv_connector_stats", "(none)", Party.CONNECTOR, error)
        return stats.data

    def reset_connector(self) -> Any:
        """The connector forgets what it has cached; False when it does not."""
        try:
            return self.connector.reset_cache()
        except Exception as error:
            self._breaches.failed("reset_cache", "(none)", Party.CONNECTOR, error)
            return False

    def connector_answered(self, report: Any) -> None:
        """The connector's scheduler side hears what its workers' side reports."""
        if self.connector is not None:
            try:
                self.connector.update_connector_output(report)
            except Exception as error:
                self._breaches.failed("update_connector_output", "(none)", Party.CONNECTOR, error)
