"""The lockstep decoders in vLLM's words: who may be one, and their part of a step's output and of an answer, made in bulk.

Rule: what comes out is what the general way makes for each of them; whatever C code cannot make for all at once (grammars, log
probabilities, an answer that is not one token) goes the general way, in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from inspect import getclosurevars
from types import MappingProxyType
from typing import Any, Protocol

from vllm_lifecycle.statemachine.kernel.columns import Columns, Served
from vllm_lifecycle.statemachine.kernel.lanes import Lanes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step

CLIENT, HEADERS, CACHED = range(3)
"""The constants of a member: its client's number, its trace headers, and how many tokens were cached when it began."""

Ends = Callable[[Any], tuple[Any, Sequence[int]]]
"""The end token of a request (None: none), and its stop tokens."""


HASHER = "get_request_block_hasher.<locals>.request_block_hasher"
"""vLLM's own way to the keys of a request (v1/core/kv_cache_utils.py); any other is asked each time."""


def hash_function(request: Any) -> Callable[[Any], Any] | None:
    """What makes the key of a block of (key of the block before, its tokens, None), for text alone; None: ask the request."""
    bound = getattr(request, "get_hash_new_full_blocks", None)
    return _function_of(getattr(request, "_block_hasher", None) if bound is None else bound.func)


@cache
def _function_of(hasher: Any) -> Callable[[Any], Any] | None:
    if getattr(hasher, "__qualname__", "") != HASHER:
        return None
    found: Callable[[Any], Any] | None = getclosurevars(hasher).nonlocals.get("caching_hash_fn")
    return found


class Requests:
    """What the columns ask of vLLM's requests; see `Facts`."""

    def __init__(self, ends: Ends, extend_keys: Callable[[Seq], None]) -> None:
        self._ends, self._extend_keys = ends, extend_keys
        self._function: Callable[[Any], Any] | None = None
        self._known: dict[Any, frozenset[int]] = {}

    def fits(self, seq: Seq) -> bool:
        """It samples one token in each step, and its client hears of that and of nothing else."""
        request = seq.payload
        if self._function is None:
            self._function = hash_function(request)
        return (
            hash_function(request) is self._function
            and request.pooling_params is None
            and not request.events
            and not request.has_encoder_inputs
            and not request.num_nans_in_logits
            and request.stop_reason is None
            and request.prompt_embeds is None
            and getattr(request, "prefill_stats", None) is None
            and getattr(request, "spec_decode_metrics", None) is None
            and getattr(request.sampling_params, "repetition_detection", None) is None
        )

    def stops(self, seq: Seq) -> frozenset[int]:
        """Its end token and its stop tokens."""
        end, stops = self._ends(seq.payload)
        key = (end, *stops)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = frozenset(token for token in key if token is not None)
        return known

    def special(self, seq: Seq) -> bool:
        """It has a grammar, or asks for log probabilities."""
        request = seq.payload
        return request.structured_output_request is not None or wants_logprobs(request.sampling_params)

    def constants(self, seq: Seq) -> tuple[Any, ...]:
        """See `CLIENT`, `HEADERS`, `CACHED`."""
        request = seq.payload
        return request.client_index, request.trace_headers, seq.cached_tokens

    def hash(self, full: Iterable[Seq], size: int) -> None:
        """The block that has become full, with the last `size` tokens, gets its key."""
        function = self._function
        for seq in full:
            keys = seq.hashes
            if function is None or seq.lora or not keys:
                self._extend_keys(seq)
            else:
                keys.append(function((keys[-1], tuple(seq.tokens[-size:]), None)))


def wants_logprobs(params: Any) -> bool:
    """The client is told log probabilities, of the likeliest tokens or of those that it named."""
    return params.logprobs is not None or bool(getattr(params, "logprob_token_ids", None))


def awaits_before(seq: Seq) -> bool:
    """Tokens were awaited of a request of the step that was dispatched last, before that step."""
    return (seq.placeholders if seq.lockstep is None else seq.lockstep.awaited - 1) > 0


def new_blocks(served: Served) -> list[tuple[list[int], ...] | None]:
    """The members' new blocks, as `CachedRequestData` has them."""
    blocks: list[tuple[list[int], ...] | None] = [None] * len(served.computed)
    for place, ids in served.fresh.items():
        blocks[place] = (ids,)
    return blocks


def of_members(served: Served, known: dict[str, list[int]]) -> tuple[Any, ...]:
    """The fields of a `CachedRequestData` of the members alone, with all tokens of some of them."""
    return served.lanes.ids.copy(), set(), [], known, new_blocks(served), served.computed, served.shown


class Before:
    """Who took part in the step before; `rid in before`."""

    def __init__(self, tokens: Mapping[str, int] = MappingProxyType({}), members: Sequence[Seq] = ()) -> None:
        self.tokens = tokens
        self.members = members

    def __contains__(self, rid: object) -> bool:
        return rid in self.tokens


def untold(served: Served, before: Before) -> dict[str, list[int]]:
    """All tokens of the members that were not in the step before."""
    lanes = served.lanes
    if lanes.seqs is before.members or lanes.ones.keys() <= before.tokens.keys():
        return {}
    return {seq.id: seq.payload._all_token_ids.copy() for seq in lanes.seqs if seq.id not in before}


class Teller(Protocol):
    """Makes the outputs of a step's answer; None where no client hears of a row."""

    def usual(self, lanes: Lanes, tokens: Sequence[list[int]]) -> list[Any]:
        """Those of all members with these tokens."""
        ...

    def special(self, answer: Any, seq: Seq, tokens: list[int], place: int) -> Any:
        """That of one member, at its place in the answer."""
        ...

    def row(self, answer: Any, row: Row) -> Any:
        """That of a row, in the general way."""
        ...


def answered(
    columns: Columns, step: Step, answer: Any, outputs: dict[int, list[Any]], teller: Teller
) -> tuple[list[Row], dict[Seq, Any], Callable[[Any, Row], Any]]:
    """The members are credited; outputs that come first in the step's order are put in `outputs`.

    Gives the rows that are left, in their order, the outputs of those among them that are made already, and what makes the
    others, in that order, of the answer and a row.
    """
    if answer.num_nans_in_logits:
        columns.dissolve()
    prompts = answer.prompt_logprobs_dict
    lanes, tokens, leavers = columns.credit(step, answer.req_id_to_index, answer.sampled_token_ids)
    if not lanes.seqs and not step.lockstep:
        return step.rows, {}, teller.row
    made = teller.usual(lanes, tokens) if lanes.seqs else []
    in_order = step.lockstep is lanes.seqs and lanes.uniform[CLIENT]
    if in_order and not leavers and not lanes.specials and not prompts:
        outputs[lanes.constants[CLIENT][0]] = made
        return step.rows, {}, teller.row
    apart = set(leavers)
    alone = {*lanes.specials, *apart}
    if prompts:
        alone.update(place for place, id in enumerate(lanes.ids) if prompts.get(id) is not None)

    def by_itself(place: int) -> Any:
        seq = lanes.seqs[place]
        if place in apart:
            return teller.row(answer, Row(seq, seq.run, 1, 0, 1))
        return teller.special(answer, seq, tokens[place], answer.req_id_to_index[seq.id])

    if in_order:
        for place in sorted(alone):
            made[place] = by_itself(place)
        outputs[lanes.constants[CLIENT][0]] = [one for one in made if one is not None] if apart else made
        return step.rows, {}, teller.row
    former = columns.departed(step)
    rows = [former.get(seq) or Row(seq, seq.run, 1, 0, 1) for seq in step.lockstep]
    before = dict(zip(lanes.seqs, made, strict=True))
    later = {lanes.seqs[place]: place for place in alone}
    for seq in later:
        del before[seq]

    def in_turn(answer: Any, row: Row) -> Any:
        place = later.get(row.seq)
        return teller.row(answer, row) if place is None else by_itself(place)

    return [*rows, *step.rows], before, in_turn
