"""A KV connector of our own, scripted by the driver: a real `KVConnectorBase_V1` that moves nothing.

Scheduler role only.  What it answers is decided by the script that the driver binds after the scheduler is built; every
hook call is passed on to that script, which keeps the truth.  It supports hybrid memory allocation, so that one class
serves any number of KV cache groups.  Imports vLLM: imported by name from the configuration only.
"""

from __future__ import annotations

from typing import Any, Protocol

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class Script(Protocol):
    """What the connector asks of the driver."""

    def matched(self, request: Any, local: int) -> tuple[int | None, bool]: ...

    def allocated(self, request: Any, blocks: tuple[tuple[int, ...], ...], external: int) -> None: ...

    def finished(self, request: Any, blocks: tuple[tuple[int, ...], ...]) -> bool: ...

    def other(self, hook: str, request: Any) -> None: ...


class Nothing(KVConnectorMetadata):  # type: ignore[misc]
    """Metadata of a step: the driver keeps the truth itself."""


def _promise(sends: bool) -> tuple[bool, dict[str, Any] | None]:
    """The answer of `request_finished`: whether blocks are held, and what the client has to be told to fetch them."""
    return sends, {"send": True} if sends else None


class ScriptedConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Answers from the bound script; see the module comment."""

    script: Script | None = None

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:
            super().__init__(vllm_config, role)

    def _script(self) -> Script:
        assert self.script is not None, "the driver binds a script before the first event"
        return self.script

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._script().matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        ids = tuple(tuple(group) for group in blocks.get_block_ids())
        self._script().allocated(request, ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return Nothing()

    def on_new_request(self, request: Any) -> None:
        self._script().other("on_new_request", request)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return _promise(self._script().finished(request, (tuple(block_ids),)))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return _promise(self._script().finished(request, tuple(tuple(group) for group in block_ids)))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Worker side: not used, nothing is moved."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Worker side: not used."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Worker side: not used."""

    def wait_for_save(self) -> None:
        """Worker side: not used."""
