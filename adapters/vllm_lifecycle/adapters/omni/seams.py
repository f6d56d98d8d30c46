"""Where the facts that vllm-omni adds live, as rows of the correspondence table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_lifecycle.adapters.vllm.correspondence import Row, reader

TABLE: tuple[Row, ...] = (
    Row("hand-offs to ship", "scheduler", ("requests_needing_kv_transfer",), spec="transfer"),
    Row("held for a hand-off", "scheduler", ("waiting_for_transfer_free",), spec="pinned"),
    Row("shipped hand-offs", "scheduler", ("active_kv_transfers",), spec="transfer"),
    Row("triggered once", "scheduler", ("transfer_triggered_requests",), spec="triggered"),
    Row("chunk adapter", "scheduler", ("chunk_transfer_adapter",), required=False),
)


class Seams:
    """Reads the facts from one scheduler; raises MissingSeam when one cannot be observed."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._ways: dict[str, Callable[[Any], Any] | None] = {r.fact: reader(r, scheduler) for r in TABLE}

    def get(self, fact: str) -> Any:
        """The raw value; None when there is no such thing."""
        way = self._ways[fact]
        return None if way is None else way(self.scheduler)
