"""One scheduler of a pair: what is called on it, what came back, and what can be seen from outside afterwards."""

from __future__ import annotations

import traceback
from typing import Any

from tests.differential.build import Factory
from tests.differential.connectors import Script
from tests.differential.grammar import Manager
from tests.differential.plain import plain

QUEUES = ("running", "waiting", "kv_holding_waiting")


class Side:
    """One scheduler with everything that holds state beside it."""

    def __init__(self, cls: type[Any], made_by: Factory) -> None:
        self.factory = made_by
        self.manager = Manager()
        self.scheduler, self.publisher = made_by.scheduler(cls, self.manager)
        self.script = Script(made_by.setup.block_size)
        self.encoder_connector = getattr(self.scheduler, "ec_connector", None)
        if made_by.setup.connector:
            self.scheduler.connector.script = self.script
        self.requests: dict[str, Any] = {}
        self.trace = ""
        self.result: Any = None

    def call(self, name: str, *args: Any) -> dict[str, Any]:
        """Call a method; what came back or was raised, and all that can be seen from outside."""
        seen: dict[str, Any] = {}
        self.result = None
        try:
            self.result = getattr(self.scheduler, name)(*args)
            seen["returned"] = plain(self.result)
        except Exception as error:
            seen["raised"] = type(error).__name__
            self.trace = _where(error)
            return seen
        return seen | self.observed()

    def observed(self) -> dict[str, Any]:
        """What the engine and others read between calls."""
        scheduler = self.scheduler
        seen = {
            **self.queues(),
            "get_request_counts": scheduler.get_request_counts(),
            "get_num_unfinished_requests": scheduler.get_num_unfinished_requests(),
            "has_requests": scheduler.has_requests(),
            "has_finished_requests": scheduler.has_finished_requests(),
            "free blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "grammar calls": self.manager.told[:],
            "connector calls": self.script.told[:],
        }
        self.manager.told.clear()
        if self.encoder_connector is not None:
            seen["encoder connector calls"] = self.encoder_connector.told[:]
        if self.publisher is not None:
            seen["cache events"] = plain(self.publisher.batches)
            self.publisher.batches = []
        return seen

    def queues(self) -> dict[str, list[str]]:
        """The ids in each queue, in order."""
        scheduler = self.scheduler
        return {
            name: [r.request_id for r in getattr(scheduler, name)]
            for name in QUEUES
            if hasattr(scheduler, name)
        }

    def view(self) -> str:
        """Queues, statuses and blocks, for a reader."""
        try:
            scheduler = self.scheduler
            queues = [
                f"{name} {[_one(r) for r in getattr(scheduler, name)]}"
                for name in QUEUES
                if hasattr(scheduler, name)
            ]
            free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            return "; ".join([*queues, f"{free} blocks free"])
        except Exception as error:
            return f"no view: {type(error).__name__}: {error}"


def _one(request: Any) -> str:
    status = {"RUNNING": "", "WAITING": ""}.get(request.status.name, f" {request.status.name}")
    return f"{request.request_id}{status} {request.num_computed_tokens}/{request.num_tokens}"


def _where(error: BaseException) -> str:
    """The exception and the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[1:][-5:]
    places = [f"      {f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}: {f.line}" for f in frames]
    return "\n".join([*places, f"      {type(error).__name__}: {error}"])
