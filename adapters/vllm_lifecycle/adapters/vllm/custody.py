"""A scheduler's state as a frame of a custody picture, while a finding is told.

Requests, tables and the free list are the scheduler's own; transfers and steps in flight are the driver's truth, never what the
scheduler remembers of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vllm_lifecycle.adapters.report.custody import Frame, Holding, Kind, RequestRow, StepRow, request_name

from .driver import Driver
from .snapshot import RequestView, Snapshot

TRANSFERS: dict[str, Kind] = {"receive": "receive", "send": "send", "handoff": "handoff"}


def frame(driver: Driver) -> Frame:
    """What is so now."""
    seen = driver.snapshot()
    pool = [b for b in range(len(seen.references)) if b != driver.observer.null]
    return Frame(
        requests=tuple(
            RequestRow(request_name(r.rid, r.epoch), r.status, tuple(_facts(r))) for r in seen.requests
        ),
        steps=tuple(
            StepRow(f"step {step.number}", f"{sum(step.tokens.values())} tokens")
            for step in driver.truth.steps
        ),
        blocks=_names(pool),
        free=_names(seen.free),
        cached=frozenset(_names(seen.cached)),
        holdings=tuple(_holdings(seen, driver)),
    )


def subjects(text: str) -> frozenset[str]:
    """The requests and blocks that a claim fell for: parameters as in `b = 1, r = r0`, or a name alone."""
    return frozenset({text, *re.findall(r"\b[rb]\w* = ([^\s,]+)", text)})


def _facts(request: RequestView) -> Iterator[str]:
    yield f"in {' and '.join(request.queues)}" if request.queues else "in no queue"
    yield f"{request.computed} of {request.known} tokens computed"
    if request.placeholders:
        yield f"{request.placeholders} output tokens awaited"
    if request.drafts:
        yield f"{request.drafts} draft tokens"


def _holdings(seen: Snapshot, driver: Driver) -> Iterator[Holding]:
    for request in seen.requests:
        if request.table:
            yield Holding("table", request_name(request.rid, request.epoch), frozenset(_names(request.table)))
    for flight in seen.flights:
        if flight.kind in TRANSFERS:
            who = request_name(flight.rid, flight.epoch)
            yield Holding(TRANSFERS[flight.kind], who, frozenset(_names(flight.blocks)))
    for step in driver.truth.steps:
        touched = {b for blocks in step.blocks.values() for b in blocks}
        if touched:
            yield Holding("step", str(step.number), frozenset(_names(touched)))
    if seen.deferred:
        yield Holding("deferred", "free", frozenset(_names(seen.deferred)))


def _names(blocks: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, blocks))
