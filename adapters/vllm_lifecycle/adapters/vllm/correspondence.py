"""Where each observed fact lives in vLLM: one table for all releases, as data.

A row names the fact in neutral words and lists the ways to read it, newest release first; the first way that resolves
is taken (feature detection: no version is ever compared).  A way is a dotted path, `()` calls.  A required row without
a way that resolves is a missing seam, reported in one line.  Rejected: one adapter module per release (they differed in
three attributes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal


class MissingSeam(Exception):
    """The scheduler does not offer a way to observe a fact that the explorer needs."""


@dataclass(frozen=True)
class Row:
    """One observed fact: `of` says on which object the ways start; an empty `spec` is observed but not modelled."""

    fact: str
    of: Literal["scheduler", "request"]
    ways: tuple[str, ...]
    required: bool = True
    spec: str = ""


TABLE: tuple[Row, ...] = (
    Row("tracked requests", "scheduler", ("requests",), spec="tracked"),
    Row("running queue", "scheduler", ("running",), spec="queue"),
    Row("waiting queue", "scheduler", ("waiting_without_blocks", "waiting"), spec="queue"),
    Row(
        "second waiting queue",
        "scheduler",
        ("waiting_with_blocks", "kv_holding_waiting", "skipped_waiting"),
        required=False,
        spec="queue",
    ),
    Row(
        "free list",
        "scheduler",
        ("kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()",),
        spec="free",
    ),
    Row("free counter", "scheduler", ("kv_cache_manager.block_pool.get_num_free_blocks()",), spec="free"),
    Row("blocks", "scheduler", ("kv_cache_manager.block_pool.blocks",), spec="references"),
    Row("null block", "scheduler", ("kv_cache_manager.block_pool.null_block",)),
    Row("block table", "scheduler", ("kv_cache_manager.get_block_ids",), spec="table"),
    Row("deferred frees", "scheduler", ("deferred_frees",), required=False),
    Row("finished notice", "scheduler", ("finished_req_ids",)),
    Row("connector", "scheduler", ("connector",), required=False),
    Row("encoder cache", "scheduler", ("encoder_cache_manager",), required=False),
    Row("engine has requests", "scheduler", ("has_requests",), spec="awake"),
    Row("engine has unfinished requests", "scheduler", ("has_unfinished_requests",)),
    Row("status", "request", ("status",), spec="status"),
    Row("computed tokens", "request", ("num_computed_tokens",), spec="computed"),
    Row("known tokens", "request", ("num_tokens",), spec="known"),
    Row("output placeholders", "request", ("num_output_placeholders",), required=False, spec="placeholders"),
    Row("stale output", "request", ("num_stale_output_tokens",), required=False, spec="row"),
    Row("stale output is dropped", "request", ("drop_stale_output",), required=False, spec="row"),
    Row("draft tokens", "request", ("spec_token_ids",), required=False, spec="drafts"),
)


def resolve(root: Any, way: str) -> Any:
    """Follow a dotted path with calls; AttributeError when a name is missing."""
    for part in way.split("."):
        root = getattr(root, part.removesuffix("()"))
        if part.endswith("()"):
            root = root()
    return root


def reader(row: Row, example: Any) -> Callable[[Any], Any] | None:
    """A function that reads the row's fact, chosen by trying the ways on `example`; None if optional and absent."""
    for way in row.ways:
        try:
            resolve(example, way)
        except AttributeError:
            continue
        return _compiled(way)
    if not row.required:
        return None
    looked = " or ".join(f"{row.of}.{w}" for w in row.ways)
    raise MissingSeam(f"cannot observe the {row.fact}: looked for {looked} on {type(example).__name__}")


def _compiled(way: str) -> Callable[[Any], Any]:
    """The way as a function: read millions of times."""
    path, call, rest = way.partition("()")
    first = attrgetter(path)
    if not call:
        return first
    if not rest:
        return lambda root: first(root)()
    then = _compiled(rest.lstrip("."))
    return lambda root: then(first(root)())


def readers(of: str, example: Any) -> dict[str, Callable[[Any], Any] | None]:
    """Readers for every row on that kind of object."""
    return {row.fact: reader(row, example) for row in TABLE if row.of == of}
