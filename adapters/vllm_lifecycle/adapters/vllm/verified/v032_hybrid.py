"""vLLM 0.32.0's `KVCacheManager` as the block store: its look-up tells more, and loaded tokens are asked for by themselves."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.adapters.vllm.verified.hybrid import HybridStore, Ids
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import Hit, Watch


class HybridStore032(HybridStore):
    """A `BlockStore` on a manager of vLLM 0.32.0."""

    def __init__(self, manager: Any, longest: int, watch: Watch | None = None) -> None:
        super().__init__(manager, longest, watch)
        self._watch = watch

    def lookup(self, seq: Seq) -> Hit:
        found, tokens, boundary = self.manager.get_computed_blocks(seq.payload)
        seq.payload.shared_prefix_boundary = boundary
        ids: Ids = found.get_block_ids()
        return Hit(ids, tokens)

    def _allocate(
        self,
        seq: Seq,
        tokens: int,
        hit: Hit | None,
        external: int,
        lookahead: int,
        cache: bool,
        encoder_tokens: int,
    ) -> Any:
        return self.manager.allocate_slots(
            seq.payload,
            tokens,
            num_new_computed_tokens=hit.tokens if hit is not None else 0,
            new_computed_blocks=self.blocks(hit.blocks) if hit is not None else None,
            num_lookahead_tokens=lookahead,
            num_external_computed_tokens=external,
            delay_cache_blocks=not cache,
            num_encoder_tokens=encoder_tokens,
            has_scheduled_reqs=False,
        )

    def needs(self, seq: Seq, total: int, hit: Hit | None = None, encoder_tokens: int = 0) -> int:
        """As the manager's gate for whole sequences counts: windows need no more than they hold at once."""
        request = seq.payload
        computed = seq.computed + (hit.tokens if hit is not None else 0)
        found = (
            self.blocks(hit.blocks) if hit is not None and hit.tokens else self.manager.empty_kv_cache_blocks
        )
        total = min(total, self.longest)
        needed: int = self.manager.coordinator.get_num_blocks_to_allocate(
            request_id=seq.id,
            num_tokens=total,
            new_computed_blocks=found.blocks,
            num_encoder_tokens=encoder_tokens,
            total_computed_tokens=min(computed, self.longest),
            num_local_computed_tokens=computed,
            num_tokens_main_model=total,
            apply_admission_cap=True,
            prefill_end=max(request.num_prompt_tokens, len(seq.tokens) - 1),
        )
        return needed

    def slide(self, seq: Seq) -> None:
        self._growing = seq
        try:
            self.manager.remove_skipped_blocks(
                seq.id,
                max(0, seq.computed - seq.payload.num_in_flight_tokens),
                num_prompt_tokens=seq.prompt,
            )
        finally:
            self._growing = None

    def reset(self) -> bool:
        done = super().reset()
        if done and self._watch is not None:
            self._watch.reset()
        return done

    def take_new(self) -> list[int] | None:
        """Blocks handed out since the last step, which the workers are to clear."""
        taken: list[int] = self.manager.take_new_block_ids()
        return taken or None
