"""Traces: a shortest path to a state, found backwards through the levels, replayed through the reference meaning.

The search keeps levels, not parents. For a state of level n some state of level n - 1 leads to it: that level is expanded
again until one does. Under symmetry the path is one of representatives; it is made concrete forwards, from the initial
state, by taking at each step a row whose successor has the next representative. Every step is then evaluated by
`lang/evaluate`; a disagreement is an error of this engine and is never shown as a counterexample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.model import Model, State
from vllm_lifecycle.spec.check.explicit.rows import Row
from vllm_lifecycle.spec.check.verdict import TraceStep
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.machine import Action, Param
from vllm_lifecycle.spec.lang.sorts import Sort, UninterpretedSort

Canon = Callable[[list[Word]], list[Word]]
CHUNK = 4096


class EngineError(RuntimeError):
    """The packed engine and the reference evaluator disagree: a defect of the engine, not of the specification."""


def state_at(words: list[Word], index: int) -> State:
    """One packed state as a tuple of words."""
    return tuple(int(w[index]) for w in words)


def single(state: State) -> list[Word]:
    """A packed state as words of length one."""
    return [np.array([w], np.uint64) for w in state]


def path_to(model: Model, levels: Sequence[list[Word]], state: State, level: int, canon: Canon) -> list[Row]:
    """Rows of a shortest path from the initial state to `state` (or to one it is equivalent to)."""
    states = [state]
    for before in range(level - 1, -1, -1):
        states.append(_predecessor(model, levels[before], states[-1], canon))
    states.reverse()
    rows: list[Row] = []
    here = model.initial()
    for following in states[1:]:
        batch = model.expander.expand(here)
        at = _match(canon(batch.words), following)
        if at is None:
            raise EngineError("a path through the levels cannot be walked forwards")
        rows.append(model.rows[int(batch.row[at])])
        here = [w[at : at + 1] for w in batch.words]
    return rows


def in_order_of_use(model: Model, rows: list[Row]) -> list[Row]:
    """The same run with its individuals renamed so that each sort's come into use in order (r0 first)."""
    names: dict[Sort, dict[Any, Any]] = {}

    def renamed(param: Param, value: Any) -> Any:
        if not isinstance(param.sort, UninterpretedSort):
            return value
        order = model.domain.of(param.sort)
        known = names.setdefault(param.sort, {})
        for one in sorted(value, key=order.index) if param.is_set else (value,):
            if one not in known:
                known[one] = order[len(known)]
        return frozenset(known[one] for one in value) if param.is_set else known[value]

    wanted = [
        (row.instance.action.name, tuple(renamed(p, row.binding[p.name]) for p in row.instance.action.params))
        for row in rows
    ]
    found: dict[tuple[str, tuple[Any, ...]], Row] = {}
    needed = set(wanted)
    for row in model.rows:
        binding = row.binding
        key = (row.instance.action.name, tuple(binding[p.name] for p in row.instance.action.params))
        if key in needed:
            found[key] = row
    return [found[key] for key in wanted]


def _predecessor(model: Model, level: list[Word], state: State, canon: Canon) -> State:
    for low in range(0, len(level[0]), CHUNK):
        chunk = [w[low : low + CHUNK] for w in level]
        batch = model.expander.expand(chunk)
        at = _match(canon(batch.words), state)
        if at is not None:
            return state_at(chunk, int(batch.source[at]))
    raise EngineError("a state of one level has no predecessor in the level before")


def _match(words: list[Word], state: State) -> int | None:
    same = words[0] == np.uint64(state[0])
    for word, wanted in zip(words[1:], state[1:], strict=True):
        same &= word == np.uint64(wanted)
    hits = np.flatnonzero(same)
    return int(hits[0]) if len(hits) else None


def replay(
    model: Model, rows: list[Row], start: dict[ev.Cell, Any] | None = None
) -> tuple[list[TraceStep], dict[ev.Cell, Any]]:
    """Walk rows with the reference evaluator; answers the steps to show and the last state, or raises EngineError."""
    state = ev.initial(model.machine, model.domain) if start is None else start
    steps: list[TraceStep] = []
    for row in rows:
        action, binding = row.instance.action, row.binding
        if not ev.enabled(action, state, model.domain, binding):
            raise EngineError(
                f"{action.name} is enabled in the packed engine but not in the reference evaluator"
            )
        if row.fault is not None:
            steps.append(TraceStep(action.name, _shown(action, binding)))
            break
        after = ev.step(model.machine, action, state, model.domain, binding)
        packed = model.expander.expand(single(model.layout.encode(state)))
        mine = [i for i in range(len(packed.row)) if model.rows[int(packed.row[i])] is row]
        if not mine or model.decode(state_at(packed.words, mine[0])) != after:
            raise EngineError(
                f"{action.name} leads elsewhere in the packed engine than in the reference evaluator"
            )
        changes = tuple(
            (cell_text(model, cell), f"{_value(model, cell, state[cell])} -> {_value(model, cell, value)}")
            for cell, value in after.items()
            if state[cell] != value
        )
        steps.append(TraceStep(action.name, _shown(action, binding), changes))
        state = after
    return steps, state


def _shown(action: Action, binding: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((p.name, text.value(binding[p.name], p.sort)) for p in action.params)


def cell_text(model: Model, cell: ev.Cell) -> str:
    """A cell as it is written: `table[r0, b1]`."""
    name, args = cell
    return text.cell(name, args, model.machine.var(name).args)


def _value(model: Model, cell: ev.Cell, value: Any) -> str:
    return text.value(value, model.machine.var(cell[0]).sort)
