"""Encoder inputs on vLLM 0.32.0: asked for one by one, shared within a request, and of one size for one content.

Cited: _try_schedule_encoder_inputs and _allocate_encoder_inputs of v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.multimodal.utils import get_mm_features_in_window

from vllm_lifecycle.adapters.vllm.verified.encoder import Encoders
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan


class Mismatch(ValueError):
    """An encoder input has another size than the cached one of the same identifier: the identifier was used for two contents."""


class Encoders032(Encoders):
    """`Encoders` of vLLM 0.32.0."""

    has_item: Callable[[str], bool] | None = None
    """Whether the encoder connector has an item; None without one."""
    freed: Callable[[Any, int], None] | None = None
    """Tells the encoder connector that a request needs an input no more; None without one."""

    def plan(self, seq: Seq, computed: int, new: int, budget: int) -> EncoderPlan:
        """What must be there for tokens `computed` to `computed + new`; raises Mismatch."""
        request, manager = seq.payload, self.manager
        chosen: list[int] = []
        external: list[int] = []
        again: list[int] = []
        planned: dict[str, int] = {}
        embeds, shift = 0, self._shift
        features = request.mm_features
        end = computed + new + shift
        low, high = get_mm_features_in_window(features, start=computed, end=end)
        for index in range(0 if self._cross else low, high):
            feature = features[index]
            position = feature.mm_position
            start, length = position.offset, position.length
            size = position.get_num_embeds()
            if self._cross and computed > 0:
                continue
            if self._whole and computed < start and computed + new < start + length:
                new = max(0, start - computed - shift)
                break
            if not self._cross:
                name = feature.identifier
                if name in planned:
                    self._same_size(request, name, planned[name], size)
                    again.append(index)
                    continue
                cached = manager.get_cached_num_encoder_embeds(request, index)
                if cached is not None:
                    self._same_size(request, name, cached, size)
                if manager.check_and_update_cache(request, index):
                    continue
            if not manager.can_allocate(request, index, budget, embeds):
                new = max(0, start - computed - shift)
                break
            first, last = position.get_embeds_indices_in_range(
                max(0, computed - start), min(length, end - start)
            )
            if first == last:
                continue
            embeds += size
            planned[feature.identifier] = size
            if self.has_item is not None and self.has_item(feature.identifier):
                external.append(index)
            else:
                budget -= size
                chosen.append(index)
        return EncoderPlan(chosen, new, budget, external, again)

    def _same_size(self, request: Any, name: str, one: int, other: int) -> None:
        if one != other:
            raise Mismatch(
                f"the encoder input {name!r} of request {request.request_id} has {other} embeddings, "
                f"but {one} are known under this identifier: give each content an identifier of its own"
            )

    def _done(self, seq: Seq) -> int:
        """The drafter reads ahead, so an entry stays that much longer; what is awaited may be computed again."""
        return seq.computed - max(self._ahead.get(seq, 0), seq.placeholders) - self._shift

    def _let_go(self, request: Any, index: int) -> None:
        super()._let_go(request, index)
        if self.freed is not None:
            self.freed(request, index)
