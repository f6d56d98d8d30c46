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

from vllm_lifecycle.spec.check.explicit.claims import (
    Target,
    Watch,
    occurrence,
    steps_of_interest,
    violation,
)
from vllm_lifecycle.spec.check.explicit.expand import Batch
from vllm_lifecycle.spec.check.explicit.finds import Find, steps_to
from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.check.explicit.planes import Flags
from vllm_lifecycle.spec.check.explicit.rows import Row
from vllm_lifecycle.spec.check.explicit.symmetry import Symmetry
from vllm_lifecycle.spec.check.explicit.table import Recent, Table
from vllm_lifecycle.spec.check.explicit.traces import cell_text, path_to, replay, state_at
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine, Property, Witness
from vllm_lifecycle.spec.lang.sorts import DefinitionError

CHUNK = 1 << 15
RECENT_BITS = 20
RECENT_FROM = 1 << 14
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


@dataclass(slots=True)
class Exploration:
    """Result of a search. `states` counts representatives under symmetry; `unreduced` sums their orbits.

    `actions` counts the transitions of each action: one that was never taken says nothing in this scope.
    """

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
    actions: dict[str, int] = field(default_factory=dict)

    @property
    def traces(self) -> dict[str, tuple[TraceStep, ...]]:
        """Counterexamples and examples by claim."""
        return {v.claim: v.trace for v in self.verdicts if v.trace}

    def verdict(self, claim: str) -> Verdict:
        """The verdict on a claim; DefinitionError when it was not asked."""
        for verdict in self.verdicts:
            if verdict.claim == claim:
                return verdict
        raise DefinitionError(
            f"this search was not asked about {claim}: progress properties need check_progress"
        )


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
    ) -> None:
        self.model = model
        self.limits = limits
        self.progress = progress
        self.stop = stop
        self.symmetry = symmetry
        self.table = Table(model.layout.words)
        self._recent: Recent | None = None
        self.levels: list[list[Word]] = []
        self.found: dict[str, Find] = {}
        self.transitions = 0
        self.states = 0
        self.unreduced = 0
        self.peak = 0
        self._state_bytes = 0
        self._taken = np.zeros(len(model.rows), np.intp)
        self._states = Watch(model, targets, on_step=False)
        self._steps = Watch(model, targets, on_step=True)
        self._of_interest = steps_of_interest(model, targets)
        self._started = time.process_time()
        self._moving: Flags | None = None
        self._fault: OverflowFound | None = None

    def watch_deadlock(self, idle: frozenset[str]) -> None:
        """Also look for states in which nothing but the named actions is enabled."""
        self._moving = np.array([r.instance.action.name not in idle for r in self.model.rows], bool)

    @property
    def seconds(self) -> float:
        """CPU seconds since the search began."""
        return time.process_time() - self._started

    @property
    def actions(self) -> dict[str, int]:
        """How often each action was taken."""
        taken = dict.fromkeys((a.name for a in self.model.machine.actions), 0)
        for row, count in zip(self.model.rows, self._taken.tolist(), strict=True):
            taken[row.instance.action.name] += count
        return taken

    def canon(self, words: list[Word]) -> list[Word]:
        """Representatives under the symmetry in use."""
        return words if self.symmetry is None else self.symmetry.canonical(words)

    def run(self) -> str:
        """Search; answers why it was cut off, or an empty text when it is complete."""
        cut = ""
        try:
            self._search()
        except _Cut as reason:
            cut = str(reason)
        except KeyboardInterrupt:
            cut = "interrupted"
        if self._fault is not None and not self.stop & self.found.keys():
            raise self._fault
        return cut

    def _search(self) -> None:
        frontier = self._arrive(self.canon(self.model.initial()), 0)
        while len(frontier[0]):
            self.levels.append(frontier)
            level = len(self.levels)
            if self.progress is not None:
                self.progress(
                    Progress(level - 1, self.states, len(frontier[0]), self.transitions, self.seconds)
                )
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
        self._taken += batch.counts
        if batch.fault is not None and self._fault is None:
            self._overflow(batch.fault, chunk, level)
        if self._moving is not None:
            self._check_deadlock(batch, chunk, level, self._moving)
        if self._steps:
            at = np.flatnonzero(self._of_interest.take(batch.row))
            source = batch.source.take(at)
            both = [w.take(source) for w in chunk] + [w.take(at) for w in batch.words]
            for name, place in self._steps.look(both):
                self._find(name, Find(state_at(chunk, int(source[place])), level - 1, on_step=True))
        self._check_limits(batch)
        words = batch.words
        if self._recent is None and self.symmetry is not None and self.states > RECENT_FROM:
            self._recent = Recent(self.model.layout.words, RECENT_BITS)
        if self._recent is not None:
            # Renaming is what costs: states whose renaming was looked up lately need none.
            unseen = self._recent.unseen(words)
            words = [w.take(unseen) for w in words]
        return self._arrive(self.canon(words), level)

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

    def _overflow(self, fault: tuple[Row, int], chunk: list[Word], level: int) -> None:
        """A number left its range: an error, unless a property that the search stops at falls first."""
        row, at = fault
        assert row.fault is not None
        cell, value = row.fault
        model = self.model
        path = path_to(model, self.levels, state_at(chunk, at), level - 1, self.canon)
        name, action = cell_text(model, model.ground.cells[cell]), row.instance.action.name
        message = (
            f"{action} takes {name} to {value} after {len(path)} steps, outside {model.ground.sorts[cell]}: "
            "guard the action or widen the range"
        )
        self._fault = OverflowFound(message, tuple(replay(model, [*path, row])[0]))
        if not self.stop:
            raise self._fault

    def _check_deadlock(self, batch: Batch, chunk: list[Word], level: int, moving: Flags) -> None:
        alive = np.zeros(len(chunk[0]), bool)
        alive[batch.source[moving.take(batch.row)]] = True
        stuck = np.flatnonzero(~alive)
        if len(stuck) and DEADLOCK not in self.found:
            self._find(DEADLOCK, Find(state_at(chunk, int(stuck[0])), level - 1))

    def _check_limits(self, batch: Batch) -> None:
        limits = self.limits
        work = sum(w.nbytes for w in batch.words) + batch.row.nbytes + batch.source.nbytes
        wanted = 2 * work + self._state_bytes + self.table.bytes_after(len(batch.row))
        wanted += self.model.expander.nbytes + self._states.nbytes + self._steps.nbytes
        wanted += 0 if self._recent is None else self._recent.nbytes
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
    targets = [violation(compiled, p) for p in claims] + [occurrence(compiled, w) for w in seen]
    reduction = Symmetry(compiled, symmetry) if symmetry else None
    stop = frozenset(g.name for g in targets if not g.wanted) | {DEADLOCK} if stop_at_first else frozenset()
    search = Search(compiled, targets, reduction, limits or Limits(), progress, stop)
    if idle is not None:
        search.watch_deadlock(frozenset(idle))
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
        actions=search.actions,
    )
    where = scope or scope_text(domain)
    asked: list[tuple[str, Target | None]] = [(g.name, g) for g in targets]
    if idle is not None:
        asked.append((DEADLOCK, None))
    result.verdicts = tuple(_verdict(search, result, name, target, where) for name, target in asked)
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


def _verdict(search: Search, result: Exploration, name: str, target: Target | None, scope: str) -> Verdict:
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
    dropped = dict.fromkeys(action for action, _ in result.model.machine.dropped_guards)
    assumptions = (f"guards about left-out modules were dropped in {', '.join(dropped)}",) if dropped else ()
    wanted = target is not None and target.wanted
    trace: tuple[TraceStep, ...] = ()
    reason = ""
    find = search.found.get(name)
    if find is not None:
        trace = steps_to(result.model, result.levels, search.canon, find, target)
        numbers["length"] = len(trace)
        outcome = Outcome.HOLDS if wanted else Outcome.REFUTED
    elif result.cut:
        outcome, reason = Outcome.NOT_ESTABLISHED, result.cut
    elif wanted:
        outcome, reason = Outcome.NOT_ESTABLISHED, "no reachable state or step is an example"
    else:
        outcome = Outcome.HOLDS
    return Verdict(name, outcome, "explicit", scope, assumptions, reason, trace, numbers)
