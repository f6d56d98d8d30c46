"""Which experts of a mixture computed a request's tokens: read from the worker's shared memory by the places of its KV cache.

The worker writes what each token was routed to at the place of its KV (block and offset). It is read when the request stops, or
its turn ends, while its table is still there. Cited: _get_routed_experts of v1/core/sched/scheduler.py. A buffer that cannot be
read costs the client that part of its output, and nobody anything else.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.fused_moe.routed_experts_capturer import RoutedExpertsReader

from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches
from vllm_lifecycle.spec.lifecycles.vocabulary import Party
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import BlockStore


class Experts:
    """Reads for one scheduler; `blocks` is the size of the KV cache in blocks."""

    def __init__(self, config: Any, store: BlockStore, blocks: int, breaches: Breaches) -> None:
        self._store, self._breaches = store, breaches
        self._reader = RoutedExpertsReader.create()
        self._reader.attach_buffer(max_num_kv_tokens=(blocks + 1) * store.block_size, vllm_config=config)

    def of(self, seq: Seq) -> Any:
        """A row for each computed token of the request, layers by experts; None where it cannot be read."""
        size = self._store.block_size
        table = self._store.table(seq)[0]
        places = [block * size + i for block in table for i in range(size)][: len(seq.tokens) - 1]
        try:
            return self._reader.get_routed_experts(indices=places)
        except Exception as error:
            self._breaches.failed("routed experts", seq.id, Party.WORKER, error)
            return None
