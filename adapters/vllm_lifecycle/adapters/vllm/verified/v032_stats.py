"""Statistics as vLLM 0.32.0 counts them: look-ups when a request goes on, loads by source, drafts without the invalid ones."""

from __future__ import annotations

from typing import Any

from vllm.v1.metrics.stats import (
    KV_FETCH_COMPLETED_WAITING,
    KV_FETCH_IN_PROGRESS,
    KV_FETCH_WAITING_TO_START,
    SchedulerStats,
)
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Stats032(Stats):
    """`Stats` of vLLM 0.32.0."""

    def loads_of(self, seq: Seq, local: int, external: int, sources: Any) -> None:
        """The connector was asked for the tokens behind the `local` ones, and had `external` of them."""
        self.external.record(
            num_tokens=len(seq.tokens) - local,
            num_hits=external,
            preempted=seq.preemptions > 0,
            hits_by_source=sources,
        )

    def drafted(self, drafts: int, accepted: int, invalid: int = 0) -> None:
        """`accepted` of a request's drafts were right; `invalid` ones the grammar had ruled out before."""
        if self.on and drafts:
            if self._drafted is None:
                self._drafted = SpecDecodingStats.new(self._most_drafts)
            self._drafted.observe_draft(num_draft_tokens=drafts - invalid, num_accepted_tokens=accepted)


def fetches(kernel: Kernel, to_start: int) -> dict[str, int]:
    """Requests with a load in the background, by how far it is: who has loaded counts until it runs."""
    states = [seq.receive.state for seq in kernel.loads if seq.receive is not None]
    active = states.count(Transfer.ACTIVE)
    return {
        KV_FETCH_WAITING_TO_START: to_start,
        KV_FETCH_IN_PROGRESS: active,
        KV_FETCH_COMPLETED_WAITING: len(kernel.loads) - active,
    }


def report(
    scheduler: Any, counted: Stats032, transfers: tuple[Any, Any], answer: Any, perf: Any
) -> SchedulerStats:
    """The statistics of a scheduler with the last answer (None: of none); `transfers`: of its two connectors."""
    running, waiting = scheduler.get_request_counts()
    deferred = len(scheduler.deferred_waiting)
    collector = scheduler.kv_metrics_collector
    of_kv, of_encodings = transfers
    return SchedulerStats(
        num_running_reqs=running,
        num_waiting_reqs=waiting - deferred,
        num_skipped_waiting_reqs=deferred,
        num_kv_fetch_reqs_by_stage=scheduler.fetches,
        kv_cache_usage=scheduler.get_kv_cache_usage(),
        prefix_cache_stats=counted.take_prefix(),
        connector_prefix_cache_stats=counted.take_external(),
        kv_cache_eviction_events=collector.drain_events() if collector is not None else [],
        spec_decoding_stats=counted.take_drafted(),
        kv_connector_stats=of_kv,
        ec_connector_stats=of_encodings,
        cudagraph_stats=answer.cudagraph_stats if answer is not None else None,
        perf_stats=perf,
    )
