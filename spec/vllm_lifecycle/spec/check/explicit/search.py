"""Breadth-first search over packed states: all reachable states of a scope, or as many as the limits allow.

Answers one verdict per property and witness, with a shortest counterexample or example. A search that was cut off (limit,
Ctrl-C) never says HOLDS: what was refuted stays refuted, the rest is not established. A number that leaves its range is an
error of the specification and is raised with its trace, not wrapped around.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vllm_lifecycle.spec.check.explicit.claims import Target, Watch, occurrence, violation
from vllm_lifecycle.spec.check.explicit.expand import Batch
from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.model import Model, State
from vllm_lifecycle.spec.check.explicit.symmetry import Symmetry
from vllm_lifecycle.spec.check.explicit.table import Table
from vllm_lifecycle.spec.check.explicit.traces import EngineError, cell_text, path_to, replay, state_at
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Machine, Property, Witness
from vllm_lifecycle.spec.lang.sorts import DefinitionError

CHUNK = 1 << 15
DEADLOCK = "no_reachable_state_is_a_deadlock"


class OverflowFound(DefinitionError):
    """An action takes a number out of its range: an error of the specification, with the trace that leads there."""

    def __init__(self, message: str, trace: tuple[TraceStep, ...]) -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds given by the user; None means none."""

    max_states: int | None = None
    max_depth: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a progress line shows."""

    level: int
    states: int
    frontier: int
    transitions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Find:
    """Where a target was found: a state of a level, for a step also the row taken from it."""

    state: State
    level: int
    row: int | None = None


@dataclass(slots=True)
class Exploration:
    """Result of a search. `states` counts representatives under symmetry; `unreduced` sums their orbits."""

    model: Model
    verdicts: tuple[Verdict, ...] = ()
    states: int = 0
    unreduced: int = 0
    transitions: int = 0
    depth: int = 0
    complete: bool = False
    cut: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    symmetry: tuple[str, ...] = ()
    levels: list[list[Word]] = field(default_factory=list)
    table: Table | None = None
    fired: frozenset[int] = frozenset()

    @property
    def traces(self) -> dict[str, tuple[TraceStep, ...]]:
        """Counterexamples and examples by claim."""
        return {v.claim: v.trace for v in self.verdicts if v.trace}

    def verdict(self, claim: str) -> Verdict:
        """The verdict on a claim; KeyError when it was not asked."""
        return next(v for v in self.verdicts if v.claim == claim)


class _Cut(Exception):
    """The search stops early; the message says why."""


class Search:
    """One search over one model."""

    def __init__(
        self,
        model: Model,
        targets: Sequence[Target],
        symmetry: Symmetry | None,
        limits: Limits,
        progress: Callable[[Progress], None] | None,
        stop: frozenset[str],
        idle: frozenset[str] | None,
    ) -> None:
        self.model = model
        self.limits = limits
        self.progress = progress
        self.stop = stop
        self.symmetry = symmetry
        self.table = Table(model.layout.words)
        self.levels: list[list[Word]] = []
        self.found: dict[str, Find] = {}
        self.transitions = 0
        self.states = 0
        self.unreduced = 0
        self.peak = 0
        self._state_bytes = 0
        self._states = Watch(model, targets, on_step=False)
        self._steps = Watch(model, targets, on_step=True)
        self._started = time.process_time()
        rows = model.rows
        self._faulty = np.array([r.fault is not None for r in rows], bool)
        self._any_fault = bool(self._faulty.any())
        self._moving = None
        if idle is not None:
            self._moving = np.array([r.instance.action.name not in idle for r in rows], bool)
        self.fired = np.zeros(len(rows), bool)

    @property
    def seconds(self) -> float:
        """CPU seconds since the search began."""
        return time.process_time() - self._started

    def canon(self, words: list[Word]) -> list[Word]:
        """Representatives under the symmetry in use."""
        return words if self.symmetry is None else self.symmetry.canonical(words)

    def run(self) -> str:
        """Search; answers why it was cut off, or an empty text when it is complete."""
        try:
            self._search()
        except _Cut as cut:
            return str(cut)
        except KeyboardInterrupt:
            return "interrupted"
        return ""

    def _search(self) -> None:
        frontier = self._arrive(self.canon(self.model.initial()), 0)
        while len(frontier[0]):
            self.levels.append(frontier)
            level = len(self.levels)
            if self.progress is not None:
                self.progress(Progress(level - 1, self.states, len(frontier[0]), self.transitions, self.seconds))
            if self.limits.max_depth is not None and level > self.limits.max_depth:
                raise _Cut(f"depth {self.limits.max_depth} reached")
            parts: list[list[Word]] = []
            for low in range(0, len(frontier[0]), CHUNK):
                chunk = [w[low : low + CHUNK] for w in frontier]
                parts.append(self._expand(chunk, level))
            frontier = [np.concatenate([p[i] for p in parts]) for i in range(len(frontier))]

    def _expand(self, chunk: list[Word], level: int) -> list[Word]:
        batch = self.model.expander.expand(chunk)
        self.transitions += len(batch.row)
        self.fired[batch.row] = True
        if self._any_fault:
            self._check_faults(batch, chunk, level)
        if self._moving is not None:
            self._check_deadlock(batch, chunk, level, self._moving)
        if self._steps:
            both = [w.take(batch.source) for w in chunk] + batch.words
            for name, at in self._steps.look(both):
                source = state_at(chunk, int(batch.source[at]))
                self._find(name, Find(source, level - 1, int(batch.row[at])))
        self._check_limits(batch)
        return self._arrive(self.canon(batch.words), level)

    def _arrive(self, words: list[Word], level: int) -> list[Word]:
        fresh = self.table.add(words)
        new = [w.take(fresh) for w in words]
        self.states += len(fresh)
        self._state_bytes += sum(w.nbytes for w in new)
        self.unreduced += len(fresh) if self.symmetry is None else self.symmetry.orbit_total(new)
        for name, at in self._states.look(new):
            self._find(name, Find(state_at(new, at), level))
        return new

    def _find(self, name: str, find: Find) -> None:
        self.found[name] = find
        if name in self.stop:
            raise _Cut(f"stopped at {name}")

    def _check_faults(self, batch: Batch, chunk: list[Word], level: int) -> None:
        hits = np.flatnonzero(self._faulty.take(batch.row))
        if not len(hits):
            return
        at = int(hits[0])
        row = self.model.rows[int(batch.row[at])]
        assert row.fault is not None
        cell, value = row.fault
        path = path_to(self.model, self.levels, state_at(chunk, int(batch.source[at])), level - 1, self.canon)
        trace, _ = replay(self.model, path)
        name, action = cell_text(self.model.ground.cells[cell]), row.instance.action.name
        sort = self.model.ground.sorts[cell]
        message = f"{action} takes {name} to {value} after {len(path)} steps, outside {sort}: guard the action or widen the range"
        raise OverflowFound(message, tuple(trace))

    def _check_deadlock(self, batch: Batch, chunk: list[Word], level: int, moving: Word) -> None:
        alive = np.zeros(len(chunk[0]), bool)
        alive[batch.source[moving.take(batch.row).astype(bool)]] = True
        stuck = np.flatnonzero(~alive)
        if len(stuck) and DEADLOCK not in self.found:
            self._find(DEADLOCK, Find(state_at(chunk, int(stuck[0])), level - 1))

    def _check_limits(self, batch: Batch) -> None:
        limits = self.limits
        work = sum(w.nbytes for w in batch.words) + batch.row.nbytes + batch.source.nbytes
        wanted = 2 * work + self._state_bytes + self.table.bytes_after(len(batch.row))
        if limits.max_bytes is not None and wanted > limits.max_bytes:
            raise _Cut(f"memory bound of {limits.max_bytes} bytes reached")
        self.peak = max(self.peak, wanted)
        if limits.max_states is not None and self.states >= limits.max_states:
            raise _Cut(f"{limits.max_states} states reached")
        if limits.max_seconds is not None and self.seconds >= limits.max_seconds:
            raise _Cut(f"{limits.max_seconds} CPU seconds used")


def explore(
    machine: Machine,
    domain: ev.Domain,
    properties: Iterable[Property] | None = None,
    witnesses: Iterable[Witness] | None = None,
    *,
    symmetry: Sequence[str] = (),
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop_at_first: bool = False,
    idle: Iterable[str] | None = None,
    scope: str = "",
    model: Model | None = None,
) -> Exploration:
    """Search a machine over a domain; `properties` and `witnesses` default to the machine's own (not progress ones).

    `idle` names actions that do not count when a state is judged a deadlock; None leaves deadlock out.
    Raises DefinitionError for a scope that does not fit and OverflowFound for a number out of range.
    """
    claims = [p for p in (machine.properties if properties is None else properties) if p.kind != "progress"]
    seen = list(machine.witnesses if witnesses is None else witnesses)
    compiled = model or Model(machine, domain)
    targets = [violation(compiled, p) for p in claims]
    wanted = [occurrence(compiled, w) for w in seen]
    reduction = Symmetry(compiled, symmetry) if symmetry else None
    stop = frozenset(g.name for g in targets) | {DEADLOCK} if stop_at_first else frozenset()
    search = Search(
        compiled, [*targets, *wanted], reduction, limits or Limits(), progress, stop, None if idle is None else frozenset(idle)
    )
    cut = search.run()
    result = Exploration(
        compiled,
        states=search.states,
        unreduced=search.unreduced,
        transitions=search.transitions,
        depth=max(len(search.levels) - 1, 0),
        complete=not cut,
        cut=cut,
        seconds=search.seconds,
        peak_bytes=search.peak,
        symmetry=reduction.sorts if reduction else (),
        levels=search.levels,
        table=search.table,
        fired=frozenset(np.flatnonzero(search.fired).tolist()),
    )
    where = scope or scope_text(domain)
    names = [(g.name, False) for g in targets] + [(g.name, True) for g in wanted]
    if idle is not None:
        names.append((DEADLOCK, False))
    verdicts: list[Verdict] = []
    for name, is_witness in names:
        verdicts.append(_verdict(search, result, name, is_witness, where))
    result.verdicts = tuple(verdicts)
    return result


def shortest(machine: Machine, domain: ev.Domain, name: str, limits: Limits | None = None) -> Verdict:
    """Search until one property falls: REFUTED with a shortest trace, or what `explore` says of it."""
    result = explore(machine, domain, [machine.claim(name)], [], limits=limits, stop_at_first=True)
    return result.verdict(name)


def scope_text(domain: ev.Domain) -> str:
    """A domain in words: `2 Request x 3 Block, max_tokens=4`."""
    sizes = " x ".join(f"{len(v)} {name}" for name, v in domain.individuals.items())
    constants = ", ".join(f"{k}={v}" for k, v in domain.constants.items())
    return f"{sizes}, {constants}" if constants else sizes


def _verdict(search: Search, result: Exploration, name: str, is_witness: bool, scope: str) -> Verdict:
    numbers: dict[str, Any] = {
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "complete": result.complete,
        "cpu_seconds": round(result.seconds, 3),
        "peak_bytes": result.peak_bytes,
    }
    if result.symmetry:
        numbers["unreduced_states"] = result.unreduced
    assumptions = tuple(
        f"the guard of {action} over other modules was dropped" for action in dict.fromkeys(a for a, _ in search.model.machine.dropped_guards)
    )
    find = search.found.get(name)
    if find is not None:
        trace = _trace(search, name, find, is_witness)
        numbers["length"] = len(trace)
        outcome = Outcome.HOLDS if is_witness else Outcome.REFUTED
        return Verdict(name, outcome, "explicit", scope, assumptions, "", trace, numbers)
    if is_witness:
        reason = f"no example within the search ({result.cut})" if result.cut else "no reachable state or step is an example"
        return Verdict(name, Outcome.NOT_ESTABLISHED, "explicit", scope, assumptions, reason, (), numbers)
    if result.cut:
        return Verdict(name, Outcome.NOT_ESTABLISHED, "explicit", scope, assumptions, result.cut, (), numbers)
    return Verdict(name, Outcome.HOLDS, "explicit", scope, assumptions, "", (), numbers)


def _trace(search: Search, name: str, find: Find, is_witness: bool) -> tuple[TraceStep, ...]:
    model = search.model
    rows = path_to(model, search.levels, find.state, find.level, search.canon)
    steps, state = replay(model, rows)
    if name == DEADLOCK:
        return tuple(steps)
    if find.row is None:
        contexts = [([], ev.Context(model.domain, state))]
    else:
        contexts = []
        for action, binding, after in ev.successors(model.machine, state, model.domain):
            row = next((r for r in model.rows if r.instance.action is action and r.binding == binding and r.fault is None), None)
            if row is not None:
                contexts.append(([row], ev.Context(model.domain, state, after)))
    for last, context in contexts:
        if _confirmed(model.machine, name, is_witness, context):
            more, _ = replay(model, last, state) if last else ([], state)
            return (*steps, *more)
    raise EngineError(f"the reference evaluator does not confirm the find of {name}")


def _confirmed(machine: Machine, name: str, is_witness: bool, context: ev.Context) -> bool:
    if is_witness:
        witness = next(w for w in machine.witnesses if w.name == name)
        return any(True for _ in ev.violations(witness.params, t.neg(witness.term), context))
    prop = machine.claim(name)
    return any(True for _ in ev.violations(prop.params, prop.body, context))
