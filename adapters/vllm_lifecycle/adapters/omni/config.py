"""The configuration that vllm-omni reads besides vLLM's own, and a chunk store in place of its transport.

The AR scheduler reads its hand-off criteria and its chunk settings from the model configuration; both are set here from
the scope.  Its chunk adapter starts two threads: they are not started, and the driver plays the receiving one between
calls (see `chunks`), so that every exploration is deterministic.  Rejected: letting the threads run against a scripted
store (arrival would depend on timing, and a replay would not be one).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from vllm_lifecycle.adapters.vllm.config import SENTINEL_TOKEN
from vllm_lifecycle.adapters.vllm.scope import Scope

STAGE = 1
"""Our stage: it has a former one (0), which sends chunks, and a next one, to which blocks are handed."""
STORE = "lifecycle chunk store"
_ADAPTERS = "vllm_omni.distributed.omni_connectors"


class ChunkStore:
    """A transport between stages that holds what the driver put in; nothing sent is kept."""

    stage_id = STAGE

    def __init__(self, extra: Any = None) -> None:
        self.chunks: dict[str, dict[str, Any]] = {}
        self.refuses = False
        """Whether the next chunk for the next stage is refused."""

    def get(
        self, former: str, this: str, key: str, metadata: Any = None
    ) -> tuple[dict[str, Any], int] | None:
        """The chunk of that key and its size, once."""
        chunk = self.chunks.pop(key, None)
        return None if chunk is None else (chunk, 1)

    def put(self, from_stage: str, to_stage: str, put_key: str, data: Any) -> tuple[bool, int, None]:
        """Take a chunk for the next stage, or refuse it once."""
        taken, self.refuses = not self.refuses, False
        return taken, int(taken), None


def next_stage_input(
    transfer_manager: Any, pooling_output: Any, request: Any, is_finished: bool
) -> dict[str, Any]:
    """What is sent to the next stage for one output: that there is one."""
    return {"request": request.request_id, "finished": is_finished}


def configure(config: Any, scope: Scope) -> None:
    """Set what the scheduler reads from the model configuration."""
    criteria = {"type": scope.handoff, "token_id": SENTINEL_TOKEN}
    handoff = {
        "need_send_cache": True,
        "kv_transfer_criteria": None if scope.handoff == "end" else criteria,
        "acknowledgement": "reported" if scope.late_acknowledgements else "in step",
    }
    settings = {
        "omni_kv_config": handoff if scope.handoff else None,
        "async_chunk": scope.chunks,
        "worker_type": "ar",
        "stage_id": STAGE,
        "stage_connector_config": {"name": STORE, "extra": {}},
        "custom_process_next_stage_input_func": f"{__name__}.next_stage_input" if scope.refusals else None,
    }
    for name, value in settings.items():
        object.__setattr__(config.model_config, name, value)
    factory = importlib.import_module(f"{_ADAPTERS}.factory").OmniConnectorFactory
    if STORE not in factory.list_registered_connectors():
        factory.register_connector(STORE, ChunkStore)


class _Idle:
    """A thread that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what a thread takes."""

    def start(self) -> None:
        """Starts nothing."""


@contextmanager
def without_threads() -> Iterator[None]:
    """While the body runs, the chunk adapter's threads are made of nothing."""
    base: Any = importlib.import_module(f"{_ADAPTERS}.transfer_adapter.base")
    real = base.threading
    base.threading = SimpleNamespace(Thread=_Idle, Event=real.Event)
    try:
        yield
    finally:
        base.threading = real
