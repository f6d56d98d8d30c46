"""The custody picture of a trace of the specification: its steps say which cells changed, and the start is known from them.

A trace is text (`table[r0, b1]: false -> true`), so this reads the words of the vocabulary: a cell that never changes has its
initial value. A trace whose cone of influence leaves the free pool out shows holders only, and one without blocks shows requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from vllm_lifecycle.adapters.report.custody import (
    Frame,
    Holding,
    Kind,
    Moment,
    Picture,
    RequestRow,
    StepRow,
)
from vllm_lifecycle.spec.check.verdict import TraceStep, Verdict

CELL = re.compile(r"(\w+)(?:\[(.*)\])?")
GONE = "FREED"
IDLE = "IDLE"
BLOCK_PLACES = {
    "free": 0,
    "table": 1,
    "pinned": 2,
    "remote": 2,
    "step_holds": 1,
    "running_step": 1,
    "cached": 0,
}
"""Cells that speak of a block, and at which argument."""
TRANSFERS: dict[str, Kind] = {"RECEIVE": "receive", "SEND": "send", "HANDOFF": "handoff"}

Cells = dict[tuple[str, tuple[str, ...]], str]


def picture(verdict: Verdict) -> Picture | None:
    """The picture of a verdict's trace; None when it has none."""
    if not verdict.trace:
        return None
    steps = [_read(step) for step in verdict.trace]
    state: Cells = {}
    for changes in reversed(steps):
        state.update({cell: before for cell, (before, _) in changes.items()})
    places = {cell for changes in steps for cell in changes}
    blocks = tuple(sorted({args[BLOCK_PLACES[name]] for name, args in places if name in BLOCK_PLACES}))
    pool = any(name == "free" for name, _ in places)
    moments = []
    for step, changes in zip(verdict.trace, steps, strict=True):
        state.update({cell: after for cell, (_, after) in changes.items()})
        told = tuple(f"{name}: {text}" if text else name for name, text in step.changes)
        moments.append(Moment(str(step) if step.params else step.action, told, _frame(state, blocks, pool)))
    return Picture(tuple(moments), loop=_loop(verdict.numbers))


def _loop(numbers: Mapping[str, object]) -> int | None:
    """Where a run that never fulfils a progress property begins to repeat."""
    prefix = numbers.get("prefix")
    return prefix if isinstance(prefix, int) and "cycle" in numbers else None


def _read(step: TraceStep) -> dict[tuple[str, tuple[str, ...]], tuple[str, str]]:
    changes = {}
    for cell, text in step.changes:
        match = CELL.fullmatch(cell)
        before, arrow, after = text.partition(" -> ")
        if match and arrow:
            args = tuple(a.strip() for a in (match[2] or "").split(",") if a.strip())
            changes[match[1], args] = before, after
    return changes


def _frame(state: Cells, blocks: tuple[str, ...], pool: bool) -> Frame:
    free = tuple(b for b in blocks if state.get(("free", (b,)), "true") == "true")
    return Frame(
        requests=tuple(_requests(state)),
        steps=tuple(
            StepRow(f"step {args[0]}", value)
            for (name, args), value in sorted(state.items())
            if name == "flight" and value != IDLE
        ),
        blocks=blocks,
        free=free if pool else None,
        cached=frozenset(
            args[0] for (name, args), value in state.items() if name == "cached" and value == "true"
        ),
        holdings=tuple(_holdings(state)),
    )


def _requests(state: Cells) -> Iterator[RequestRow]:
    for (name, args), status in sorted(state.items()):
        if name == "status" and status != GONE:
            facts = [f"{word} {state[word, args]}" for word in ("known", "computed") if (word, args) in state]
            yield RequestRow(args[0], status, tuple(facts))


def _holdings(state: Cells) -> Iterator[Holding]:
    """Who holds what: the scheduler's record and the truth together, told apart where they differ."""
    held: dict[tuple[Kind, str], set[str]] = {}
    for (name, args), value in sorted(state.items()):
        if value == "true" and (key := _holder(name, args)):
            held.setdefault(key, set()).add(args[-1])
    tables_first = sorted(held, key=lambda key: (key[0] != "table", *key))
    yield from (Holding(*key, frozenset(held[key])) for key in tables_first)


def _holder(name: str, args: Sequence[str]) -> tuple[Kind, str] | None:
    match name, tuple(args):
        case "table", (request, _):
            return "table", request
        case (("step_holds" | "running_step"), (step, _)):
            return "step", step
        case (("pinned" | "remote"), (request, kind, _)):
            return TRANSFERS[kind], request
        case _:
            return None
