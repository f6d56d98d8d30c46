"""Connectors that follow the requests' scripts: one for the KV cache, one for the encoder cache.

Both write down every call of the scheduler, in order; the metadata of a step carries what was told since the step before, so
that the connectors' view is compared like every other output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.plain import plain
from tests.differential.settings import Add
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata
from vllm.distributed.kv_events import AllBlocksCleared
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from vllm_lifecycle.adapters.vllm.connector import ScriptedConnector


@dataclass
class Told(KVConnectorMetadata, ECConnectorMetadata):  # type: ignore[misc]
    """Metadata of a step: the calls since the step before, and the step as the connector was shown it."""

    calls: list[Any]
    scheduled: Any


@dataclass
class PairedStats(KVConnectorStats):  # type: ignore[misc]
    """Numbers by name; two of them join by name."""

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        return PairedStats(data={**self.data, **other.data})

    def is_empty(self) -> bool:
        return not self.data

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def reset(self) -> None:
        self.data.clear()


@dataclass
class Load:
    """Tokens that a connector brings, in the blocks that the scheduler named for them."""

    rid: str
    between: bool
    blocks: list[int]


@dataclass
class Script:
    """The answers of the KV connector, and what follows from them."""

    block_size: int
    adds: dict[str, Add] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    claims: dict[str, tuple[int, bool]] = field(default_factory=dict)
    started: list[Load] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    taken: int = 0
    """How often the connector's events were asked for."""

    def matched(self, request: Any, local: int) -> tuple[int | None, bool]:
        rid = request.request_id
        add = self.adds[rid]
        turn = self.asked[rid] = self.asked.get(rid, 0) + 1
        answer: tuple[int | None, bool] = (0, False)
        if turn <= add.undecided:
            answer = (None, False)
        elif add.match and (add.rematch or not request.num_preemptions):
            extra = max(0, min(add.match, request.num_tokens - 1) - local)
            answer = (extra, add.between and extra > 0)
        self.claims[rid] = (local, answer[1])
        self.told.append(("matched", rid, local, answer))
        return answer

    def allocated(self, request: Any, blocks: tuple[tuple[int, ...], ...], external: int) -> None:
        rid = request.request_id
        self.told.append(("allocated", rid, blocks, external))
        if external:
            local, between = self.claims[rid]
            span = slice(local // self.block_size, -(-(local + external) // self.block_size))
            self.started.append(Load(rid, between, list(blocks[0][span])))

    def finished(self, request: Any, blocks: tuple[tuple[int, ...], ...]) -> bool:
        rid = request.request_id
        self.told.append(("finished", rid, request.status.name, blocks))
        holds = self.adds[rid].hold and any(blocks)
        if holds:
            self.held.append(rid)
        return holds

    def other(self, hook: str, request: Any) -> None:
        self.told.append((hook, request.request_id))


class PairedConnector(ScriptedConnector):
    """The scripted connector, with metadata, statistics and events that can be compared."""

    script: Script | None

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        assert self.script is not None
        calls, self.script.told = self.script.told, []
        return Told(calls, plain(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        assert self.script is not None
        self.script.told.append(("update_connector_output", plain(connector_output)))

    def take_events(self) -> Any:
        assert self.script is not None
        self.script.taken += 1
        return [AllBlocksCleared()] if self.script.taken % 3 == 0 else ()

    def get_kv_connector_stats(self) -> Any:
        assert self.script is not None
        return PairedStats(data={"taken": self.script.taken})

    def reset_cache(self) -> bool:
        assert self.script is not None
        self.script.told.append(("reset_cache",))
        return True


class PairedEncoderConnector(ECConnectorBase):  # type: ignore[misc]
    """Has the first images of a request, as many as its `Add` says."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        super().__init__(vllm_config, role)
        self.adds: dict[str, Add] = {}
        self.told: list[Any] = []

    def has_caches(self, request: Any) -> list[bool]:
        self.told.append(("has_caches", request.request_id))
        there = self.adds[request.request_id].remote_images
        return [i < there for i in range(len(request.mm_features))]

    def has_cache_item(self, identifier: str, *args: Any, **kwargs: Any) -> bool:
        self.told.append(("has_cache_item", identifier))
        return sum(map(ord, identifier)) % 2 == 0

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self.told.append(("allocated", request.request_id, index))

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        calls, self.told = self.told, []
        return Told(calls, None)

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        """Worker side: not used."""

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        """Worker side: not used."""
