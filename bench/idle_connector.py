"""A KV connector with nothing to load or to send: what merely having one costs a scheduler."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from vllm_lifecycle.adapters.vllm.connector import ScriptedConnector


class IdleConnector(ScriptedConnector):
    """Answers every hook with nothing, at once."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """Nothing to load."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to load."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to say."""
        return NOTHING

    def on_new_request(self, request: Any) -> None:
        """Nothing to note."""

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Nothing to send."""
        return False, None

    request_finished_all_groups = request_finished


NOTHING = KVConnectorMetadata()
