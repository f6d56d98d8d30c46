"""What others read from a scheduler of ours, and may set: the queues, connectors and counters that vLLM's own has as attributes.

All of it is read from the kernel's state when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm_lifecycle.adapters.vllm.verified import assembly
from vllm_lifecycle.adapters.vllm.verified.lockstep import Before
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.adapters.vllm.verified.update import Answers
from vllm_lifecycle.adapters.vllm.verified.views import Names, Running, Waiting, record
from vllm_lifecycle.adapters.vllm.verified.world import INPUTS, Surroundings
from vllm_lifecycle.statemachine.kernel.kernel import Kernel


class Readings:
    """The attributes of vLLM's `Scheduler`."""

    _kernel: Kernel
    _world: Surroundings
    _answers: Answers
    _stats: Stats
    _running: Running
    _before: Before
    _names: Names

    @property
    def waiting_without_blocks(self) -> Waiting:
        """The waiting requests that hold no block, in order."""
        return Waiting(lambda: self._kernel.waiting)

    @property
    def waiting_with_blocks(self) -> Waiting:
        """The waiting requests that load, or have loaded, in order: they go on first."""
        return Waiting(lambda: self._kernel.holding)

    @property
    def running(self) -> Running:
        """The running requests, in order."""
        return self._running

    @running.setter
    def running(self, requests: Iterable[Any]) -> None:
        self._running[:] = list(requests)

    @property
    def prev_step_scheduled_req_ids(self) -> set[str]:
        """Who took part in the last step, as far as the workers may be told less of it for that."""
        return {rid for rid in self._kernel.seqs if rid in self._before}

    @property
    def connector(self) -> Any:
        """The KV connector; None without one."""
        return self._world.connector

    @connector.setter
    def connector(self, connector: Any) -> None:
        self._world.connector = connector

    @property
    def ec_connector(self) -> Any:
        """The connector of the encoder cache; None without one."""
        return self._world.encoder_connector

    @ec_connector.setter
    def ec_connector(self, connector: Any) -> None:
        self._world.encoder_connector = connector

    @property
    def encoder_cache_manager(self) -> Any:
        """The manager of the encoder cache, which is vLLM's."""
        return self._world.encoders.manager

    @encoder_cache_manager.setter
    def encoder_cache_manager(self, manager: Any) -> None:
        self._world.encoders.manager = manager

    @property
    def finished_req_ids(self) -> set[str]:
        """Ids that finished since the last step, of which the workers have not heard yet."""
        return self._kernel.notices

    @finished_req_ids.setter
    def finished_req_ids(self, ids: Iterable[str]) -> None:
        self._kernel.notices = set(ids)

    @property
    def encoder_cache_mismatch_reqs(self) -> set[str]:
        """Requests with an encoder input that is not what its identifier stands for; they end with the next answer."""
        return {seq.id for seq, hook in self._world.doomed.items() if hook == INPUTS}

    @property
    def deferred_frees(self) -> list[tuple[int, list[Any]]]:
        """Blocks of requests that have ended or were preempted and that only a step in flight still holds."""
        make = self._world.blocks
        return [
            (last, [block for group in make(hold.blocks).blocks for block in group])
            for last, hold in self._kernel.steps.waiting
        ]

    @property
    def finished_recving_kv_req_ids(self) -> set[str]:
        """Requests whose load is done and that have not gone on yet."""
        return assembly.loaded(self._kernel)

    @property
    def failed_recving_kv_req_ids(self) -> set[str]:
        """Requests whose load failed, wholly or in part, and that have not gone on yet."""
        return assembly.failed(self._kernel)

    @property
    def recompute_kv_load_failures(self) -> bool:
        """A failed load is computed; else its request ends with an error."""
        return self._answers.loads.recompute

    @property
    def connector_prefix_cache_stats(self) -> Any:
        """Hits of the connector since the last report; None without statistics or connector."""
        return self._stats.external

    def get_kv_connector(self) -> Any:
        return self._world.connector

    # what vLLM does in parts, and its tests do by hand

    def _preempt_request(self, request: Any, timestamp: float = 0.0, drop_stale_output: bool = False) -> None:
        """A running request gives way; whoever calls may have taken it out of `running` already."""
        seq = request._seq
        if seq not in self._kernel.running:
            self._kernel.running.append(seq)
        self._world.begin()
        self._kernel.preempt(seq, deliver=not drop_stale_output)
        self._world.encoder_free(seq)
        self._world.preempted(seq)

    def _free_encoder_inputs(self, request: Any) -> None:
        """Encoder entries that lie wholly in tokens that stay computed are let go."""
        self._world.encoders.release(record(request, self._names))

    # counts

    def get_request_counts(self) -> tuple[int, int]:
        running = len(self._kernel.running)
        return running, self._kernel.unfinished - running

    def get_num_unfinished_requests(self) -> int:
        return self._kernel.unfinished - len(self._kernel.idle)

    def has_finished_requests(self) -> bool:
        kernel = self._kernel
        return bool(kernel.notices) or len(kernel.seqs) > kernel.unfinished
