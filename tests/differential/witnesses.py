"""What a run has reached: a group that never meets what it is named for compares nothing.

Each witness looks at one step, answer or event of the reference; a group names those that it must meet in its short run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.differential.settings import Add

Witness = Callable[[Any, Mapping[str, Add]], bool]
"""From the `SchedulerOutput` and the requests so far."""


def _new(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.scheduled_new_reqs)


def _hit(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(
        new.num_computed_tokens and not adds[new.req_id].match and not adds[new.req_id].skip_cache
        for new in output.scheduled_new_reqs
    )


def _chunk(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(
        new.num_computed_tokens + output.num_scheduled_tokens[new.req_id] < len(new.prompt_token_ids)
        for new in output.scheduled_new_reqs
    )


def _resumed(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(getattr(output.scheduled_cached_reqs, "resumed_req_ids", ())) or any(
        new.prefill_token_ids and len(new.prefill_token_ids) > len(new.prompt_token_ids)
        for new in output.scheduled_new_reqs
    )


def _preempted(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.preempted_req_ids)


def _finished(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.finished_req_ids)


def _drafts(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.scheduled_spec_decode_tokens)


def _grammar(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(adds[rid].grammar for rid in output.num_scheduled_tokens)


def _images(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.scheduled_encoder_inputs)


def _image_without_encoding(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(
        adds[rid].images and rid not in output.scheduled_encoder_inputs for rid in output.num_scheduled_tokens
    )


def _images_dropped(output: Any, adds: Mapping[str, Add]) -> bool:
    return bool(output.free_encoder_mm_hashes)


def _two_adapters(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(adds[rid].adapter for rid in output.num_scheduled_tokens)


def _pooling(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(adds[rid].pooling for rid in output.num_scheduled_tokens)


def _sync_load(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(adds[n.req_id].match and not adds[n.req_id].between for n in output.scheduled_new_reqs)


def _async_load(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(adds[n.req_id].between and n.num_computed_tokens for n in output.scheduled_new_reqs)


def _common(output: Any, adds: Mapping[str, Add]) -> bool:
    return any(output.num_common_prefix_blocks)


STEP: Mapping[str, Witness] = {
    "admitted": _new,
    "prefix hit": _hit,
    "prompt in chunks": _chunk,
    "resumed": _resumed,
    "preempted": _preempted,
    "finished": _finished,
    "drafts": _drafts,
    "grammar": _grammar,
    "encoder inputs": _images,
    "encoder input already there": _image_without_encoding,
    "encoder entries dropped": _images_dropped,
    "adapter": _two_adapters,
    "pooling": _pooling,
    "load in the step": _sync_load,
    "load between steps": _async_load,
    "common prefix": _common,
}


def of_step(output: Any, adds: Mapping[str, Add]) -> Iterator[str]:
    """The witnesses of one step."""
    return (name for name, sees in STEP.items() if sees(output, adds))


def of_outputs(groups: Any) -> Iterator[str]:
    """The witnesses of what `update_from_output` returned."""
    for client, group in groups.items():
        if client:
            yield "another client"
        if group.finished_requests:
            yield "finished set"
        if group.scheduler_stats is not None:
            yield "statistics"
            if group.scheduler_stats.kv_connector_stats:
                yield "connector statistics"
        for one in group.outputs:
            if one.finish_reason is not None:
                yield f"ended: {one.finish_reason.name.lower()}"
            if one.kv_transfer_params:
                yield "transfer parameters"
            if one.new_logprobs is not None:
                yield "log probabilities"


MUST: Mapping[str, frozenset[str]] = {
    group: frozenset(names.split(", "))
    for group, names in {
        "mixed": "admitted, finished, ended: stop, ended: length, prefix hit",
        "sharing": "prefix hit, common prefix",
        "chunking": "prompt in chunks",
        "preemption": "preempted, resumed",
        "aborts": "finished, several in flight, preempted",
        "drafts": "drafts, preempted, drafts rejected, drafts accepted",
        "grammar": "grammar, drafts",
        "encoder": "encoder inputs, encoder input already there, encoder entries dropped",
        "encoder-transfer": "encoder inputs, encoder input already there",
        "adapters": "adapter",
        "pooling": "pooling, ended: stop",
        "stops": "ended: stop, ended: length",
        "loads": "load in the step, transfer parameters, send reported",
        "loads-between": "load between steps, transfer parameters, send reported, load reported",
        "load-failures": "load in the step failed, load between steps failed, ended: error",
        "resets": "reset, reset of what runs, resumed",
        "pipeline": "several in flight, preempted",
        "asynchronous": "several in flight, ended: stop",
        "asynchronous-drafts": "several in flight, drafts, grammar",
        "clients": "another client, finished set",
        "second-runner": "preempted, resumed",
        "statistics": "statistics, cache events, drafts",
        "hybrid": "prefix hit, admitted",
        "outputs": "log probabilities, NaN counts, statistics, connector statistics",
    }.items()
}
"""What a group has to meet in a short run."""
