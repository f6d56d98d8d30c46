"""The encoder cache: which inputs a pass computes, and when their outputs may go.

vLLM's cache managers count the space; what differs here is when they are told. An entry is let go when the step that read it has
been answered, not when it is dispatched; an entry that is evicted and allocated again is not dropped; an encoder-decoder request
gives its share back once. Rejected: a cache of our own, because the managers differ between releases and are read by others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager

from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan

_names = count()


class Ended:
    """A request that has ended, under a name that no later one has: its id may be given again while a step reads its entries."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.request_id = f"{request.request_id} (ended, {next(_names)})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class Cache(EncoderCacheManager):  # type: ignore[misc]
    """vLLM's cache, whose drop list never names an entry that is there."""

    def part(self, request: Any) -> Ended:
        """Its references go by a name of their own from now on."""
        rid, ended = request.request_id, Ended(request)
        for feature in request.mm_features:
            users = self.cached.get(feature.identifier, ())
            if rid in users:
                users.remove(rid)
                users.add(ended.request_id)
        inputs = getattr(self, "request_cached_ids", {})
        if rid in inputs:
            inputs[ended.request_id] = inputs.pop(rid)
        return ended

    def allocate(self, request: Any, input_id: int) -> None:
        identifier = request.mm_features[input_id].identifier
        if identifier in self.freed:
            self.freed.remove(identifier)
        super().allocate(request, input_id)


class CrossCache(EncoderDecoderCacheManager):  # type: ignore[misc]
    """vLLM's count of space for encoder-decoder models, where an input gives back what it took, once."""

    def __init__(self, cache_size: int) -> None:
        super().__init__(cache_size)
        self._taken: set[tuple[str, int]] = set()

    def part(self, request: Any) -> Ended:
        """What it took goes by a name of its own from now on."""
        rid, ended = request.request_id, Ended(request)
        mine = {taken for taken in self._taken if taken[0] == rid}
        self._taken -= mine
        self._taken |= {(ended.request_id, index) for _, index in mine}
        return ended

    def allocate(self, request: Any, input_id: int) -> None:
        super().allocate(request, input_id)
        self._taken.add((request.request_id, input_id))

    def free_encoder_input(self, request: Any, input_id: int) -> None:
        if (request.request_id, input_id) in self._taken:
            self._taken.discard((request.request_id, input_id))
            super().free_encoder_input(request, input_id)


class Encoders:
    """Plans encoder inputs, and lets their outputs go when no step in flight reads them.

    whole   an input is computed in one step or not at all; shift: 1 if the drafter reads outputs one token ahead
    """

    def __init__(
        self,
        manager: Any,
        *,
        cross: bool,
        whole: bool,
        shift: int,
        remote: Callable[[Any], list[bool]] | None,
        touches: Callable[[int], bool],
    ) -> None:
        self.manager = manager
        self._cross, self._whole, self._shift = cross, whole, shift
        self._remote = remote
        self._touches = touches
        self._ahead: dict[Seq, int] = {}
        self._later: list[tuple[int, Seq, Any]] = []

    def plan(self, seq: Seq, computed: int, new: int, budget: int) -> EncoderPlan:
        """What must be there for tokens `computed` to `computed + new`; fewer tokens when an input has no room."""
        request, manager = seq.payload, self.manager
        remote = self._remote(request) if self._remote is not None else ()
        chosen: list[int] = []
        external: list[int] = []
        planned: set[str] = set()
        embeds = 0
        for index, feature in enumerate(request.mm_features):
            position = feature.mm_position
            start, length = position.offset, position.length
            if start >= computed + new + self._shift:
                break
            if computed > 0 if self._cross else start + length <= computed:
                continue
            if not self._cross and (
                feature.identifier in planned or manager.check_and_update_cache(request, index)
            ):
                continue
            if self._whole and computed < start and computed + new < start + length:
                new = start - computed
                break
            if not manager.can_allocate(request, index, budget, embeds):
                new = max(0, start - computed - self._shift)
                break
            first, last = position.get_embeds_indices_in_range(
                max(0, computed - start), min(length, computed + new - start)
            )
            if first == last:
                continue
            size = request.get_num_encoder_embeds(index)
            embeds += size
            planned.add(feature.identifier)
            if remote and remote[index]:
                external.append(index)
            else:
                budget -= size
                chosen.append(index)
        return EncoderPlan(chosen, new, budget, external)

    def size(self, seq: Seq, inputs: list[int]) -> int:
        """Embeddings of these inputs."""
        return sum(seq.payload.get_num_encoder_embeds(i) for i in inputs)

    def dispatched(self, row: Row) -> None:
        """A step that may read the request's entries is on its way."""
        if row.seq.payload.has_encoder_inputs:
            self._ahead[row.seq] = self._ahead.get(row.seq, 0) + row.tokens

    def answered(self, rows: list[Row]) -> None:
        """Entries that lie wholly in computed tokens are let go, then those of requests that ended meanwhile."""
        for row in rows:
            if row.seq in self._ahead:
                self._release(row)
        if self._later:
            due = [one for one in self._later if not self._touches(one[0])]
            self._later = [one for one in self._later if self._touches(one[0])]
            for _, seq, request in due:
                self._free(seq, request)

    def _release(self, row: Row) -> None:
        self._ahead[row.seq] -= row.tokens
        if row.run == row.seq.run and row.seq.reason is None:
            self.release(row.seq)

    def release(self, seq: Seq) -> None:
        """Entries that lie wholly in computed tokens are let go."""
        request, manager, done = seq.payload, self.manager, self._done(seq)
        for index in list(manager.get_cached_input_ids(request)):
            position = request.mm_features[index].mm_position
            if done > 0 if self._cross else position.offset + position.length <= done:
                self._let_go(request, index)

    def _done(self, seq: Seq) -> int:
        """Tokens of the request that no step in flight computes, and no step will compute again."""
        return seq.computed - self._ahead.get(seq, 0)

    def _let_go(self, request: Any, index: int) -> None:
        """The request needs this entry no more."""
        self.manager.free_encoder_input(request, index)

    def free(self, seq: Seq) -> None:
        """The request needs its entries no more; those that a step in flight reads stay until it is answered."""
        request = seq.payload
        if not request.has_encoder_inputs:
            return
        last = max([seq.last_step, *(number for number, other, _ in self._later if other is seq)])
        self.runs_again(seq)
        if seq.in_flight and self._touches(last):
            self._later.append((last, seq, request if seq.reason is None else self.manager.part(request)))
        else:
            self._free(seq, request)

    def runs_again(self, seq: Seq) -> None:
        """What was to be let go with the last step of its former run stays: the request refers to it anew."""
        if self._later:
            self._later = [one for one in self._later if one[1] is not seq]

    def _free(self, seq: Seq, request: Any) -> None:
        if seq.status.name.startswith(("FINISHED", "FREED", "WAITING_FOR_TRANSFER")):
            self._ahead.pop(seq, None)
        self.manager.free(request)
