"""The prefix cache's changes as vLLM 0.32.0's events: with the group, the extra keys of each block and the session."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from vllm.distributed.kv_events import MEDIUM_GPU, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)

from vllm_lifecycle.adapters.vllm.verified.events import CacheEvents, CacheWatch
from vllm_lifecycle.statemachine.kernel.seq import Seq


class CacheEvents032(CacheEvents):
    """`CacheEvents` of vLLM 0.32.0; `kind` is the word for the group's kind of attention."""

    kind: str | None = None

    @property
    def size(self) -> int:
        """Tokens in a block."""
        return self._size

    def stored(self, seq: Seq, first: int, last: int) -> None:
        hashes, size, request = seq.hashes, self.size, seq.payload
        lora = request.lora_request
        extra: list[Any] = []
        at = 0
        for block in range(first, last):
            keys, at = generate_block_hash_extra_keys(request, block * size, (block + 1) * size, at)
            extra.append(keys)
        self._events.append(
            BlockStored(
                block_hashes=[maybe_convert_block_hash(key) for key in hashes[first:last]],
                parent_block_hash=maybe_convert_block_hash(hashes[first - 1]) if first else None,
                token_ids=seq.tokens[first * size : last * size],
                block_size=size,
                lora_id=lora.adapter_id if lora else None,
                medium=MEDIUM_GPU,
                lora_name=lora.name if lora else None,
                extra_keys=to_event_extra_keys(extra),
                group_idx=0,
                kv_cache_spec_kind=self.kind,
                session_id=request.session_id,
            )
        )

    def removed(self, key: Hashable) -> None:
        self._events.append(
            BlockRemoved(block_hashes=[maybe_convert_block_hash(key)], medium=MEDIUM_GPU, group_idx=0)
        )


class CacheWatch032(CacheWatch):
    """Look-ups count when the request goes on; who asked for full reports hears of blocks that were found, too."""

    events: CacheEvents032 | None = None

    def looked_up(self, seq: Seq, tokens: int) -> None:
        if (
            tokens
            and self.events is not None
            and getattr(seq.payload, "kv_cache_report_mode", "incremental") == "full"
        ):
            self.events.stored(seq, 0, tokens // self.events.size)
