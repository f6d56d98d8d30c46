r"""Progress properties on the unreduced graph: `antecedent ~> consequent` under the declared fairness.

A counterexample is a lasso: a run to a state where the antecedent holds and the consequent does not, and from there a fair
run that never meets the consequent. Such runs end up in a strong component of the states without consequent, or stop in one
state for ever. A component is fair when, for each weakly fair instance, it holds a state that does not enable it or a step
that takes it; for strong fairness, a component that enables an instance without taking it is searched again without the
states that enable it (Emerson and Lei). Fairness is per action instance with its scalar parameters, as `\A r : WF(A(r))`:
one request cannot be starved by the others. Set-valued parameters are chosen inside an instance. Only steps that change the
state count. Since renaming individuals maps fair runs to fair runs, one parameter value per orbit is enough; reducing the
graph itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from vllm_lifecycle.spec.check.explicit.graph import Graph
from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.check.explicit.planes import Flags, Index
from vllm_lifecycle.spec.check.explicit.rows import Row
from vllm_lifecycle.spec.check.explicit.search import Exploration, Limits, Progress, explore, scope_text
from vllm_lifecycle.spec.check.explicit.traces import EngineError, path_to, replay, state_at
from vllm_lifecycle.spec.check.verdict import VACUOUS, Outcome, TraceStep, Verdict
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Fairness, Machine, Param, Property
from vllm_lifecycle.spec.lang.sorts import UninterpretedSort


@dataclass(frozen=True, slots=True)
class _Lasso:
    """States by number: where the obligation begins, the component of the fair run, and all states that it may use."""

    seeds: Index
    alive: Flags
    component: Flags


def check_progress(
    machine: Machine,
    domain: ev.Domain,
    properties: Iterable[Property] | None = None,
    *,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
    exploration: Exploration | None = None,
    scope: str = "",
) -> tuple[Verdict, ...]:
    """Verdicts on progress properties (default: all of the machine); an exploration made before is used when given.

    Raises DefinitionError when that exploration was reduced by symmetry. A search that was cut off establishes nothing.
    """
    claims = [p for p in (machine.properties if properties is None else properties) if p.kind == "progress"]
    if not claims:
        return ()
    found = exploration or explore(machine, domain, [], [], limits=limits, progress=progress)
    where = scope or scope_text(domain)
    assumed = assumptions(machine)
    numbers = {"states": found.states, "transitions": found.transitions, "complete": found.complete}
    if not found.complete and not found.symmetry:
        return tuple(
            Verdict(p.name, Outcome.NOT_ESTABLISHED, "liveness", where, assumed, found.cut, (), numbers)
            for p in claims
        )
    graph = Graph(found)
    return tuple(_check(graph, prop, where, assumed, numbers) for prop in claims)


def assumptions(machine: Machine) -> tuple[str, ...]:
    """The fairness that the verdicts rest on, by action."""
    lines = []
    for kind in (Fairness.WEAK, Fairness.STRONG):
        names = [
            f"{a.name}({', '.join(p.name for p in a.params if not p.is_set)})"
            for a in machine.actions
            if a.fairness is kind
        ]
        if names:
            lines.append(f"{kind.value} fairness of each instance of {', '.join(names)}")
    return tuple(lines) or ("no action is fair",)


def representatives(params: tuple[Param, ...], domain: ev.Domain) -> list[dict[str, Any]]:
    """Parameter values, one per orbit under renaming of individuals."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for binding in ev.bindings(params, domain):
        first: dict[str, list[Any]] = {}
        key: list[Any] = []
        for param in params:
            value = binding[param.name]
            if isinstance(param.sort, UninterpretedSort) and not param.is_set:
                known = first.setdefault(param.sort.name, [])
                if value not in known:
                    known.append(value)
                key.append(known.index(value))
            else:
                key.append(value)
        seen.setdefault(tuple(key), binding)
    return list(seen.values())


def _check(
    graph: Graph, prop: Property, scope: str, assumed: tuple[str, ...], numbers: dict[str, Any]
) -> Verdict:
    model = graph.model
    met = False
    for binding in representatives(prop.params, model.domain):
        antecedent, consequent = model.truth(prop.antecedent, binding), model.truth(prop.consequent, binding)
        holds, done = graph.truth([antecedent, consequent])
        met = met or bool(holds.any())
        alive = ~done
        seeds = np.flatnonzero(holds & alive)
        reached, _, _ = graph.reach(seeds, alive)
        component = fair_component(graph, reached)
        if component is None:
            continue
        rows, prefix = _lasso(graph, _Lasso(seeds, alive, component))
        trace = _replayed(model, prop, binding, rows, prefix)
        named = ", ".join(f"{k}={v}" for k, v in binding.items())
        last = len(rows)
        loop = (
            f"steps {prefix + 1} to {last} repeat for ever"
            if last > prefix
            else f"nothing fair is enabled after step {last}"
        )
        return Verdict(
            prop.name,
            Outcome.REFUTED,
            "liveness",
            scope,
            assumed,
            f"{loop}; the consequent is never met for {named}"
            if named
            else f"{loop}; the consequent is never met",
            trace,
            {**numbers, "prefix": prefix, "cycle": last - prefix},
        )
    if not met:
        return Verdict(prop.name, Outcome.NOT_ESTABLISHED, "liveness", scope, assumed, VACUOUS, (), numbers)
    return Verdict(prop.name, Outcome.HOLDS, "liveness", scope, assumed, "", (), numbers)


def fair_component(graph: Graph, within: Flags) -> Flags | None:
    """States of some fair component inside `within` (a single state where a run may stop counts), or None."""
    active = within.copy()
    while active.any():
        stopped = np.flatnonzero(active & ~graph.some_fair)
        if len(stopped):
            return _only(graph, stopped[:1])
        states = np.flatnonzero(active)
        labels, sizes = _components(graph, active, states)
        # A state alone in its component enables something fair that leaves it: no fair run stays.
        big = np.flatnonzero(sizes > 1)
        if not len(big):
            return None
        rank = np.full(len(sizes), -1, np.int32)
        rank[big] = np.arange(len(big), dtype=np.int32)
        place = np.full(graph.count, -1, np.int32)
        place[states] = rank.take(labels)
        dead = np.zeros(len(big), bool)
        starved: list[tuple[int, Flags]] = []
        for number, group in enumerate(graph.groups):
            edges = graph.edges_of[number]
            here = place.take(graph.source.take(edges))
            edges, here = edges[here >= 0], here[here >= 0]
            if not len(edges):
                continue
            taken = np.zeros(len(big), bool)
            taken[here[place.take(graph.target.take(edges)) == here]] = True
            source = graph.source.take(edges)
            distinct = np.concatenate(([True], source[1:] != source[:-1]))
            enabling = np.bincount(here[distinct], minlength=len(big))
            dead |= (enabling == sizes.take(big)) & ~taken
            if group.strong:
                missed = (enabling > 0) & ~taken
                if missed.any():
                    starved.append((number, missed))
        wrong = dead.copy()
        for _, missed in starved:
            wrong |= missed
        fair = np.flatnonzero(~wrong)
        if len(fair):
            chosen: Flags = place == fair[np.argmin(sizes.take(big).take(fair))]
            return chosen
        # What is left: components that only starve strongly fair instances, without the states that enable those.
        kept = np.zeros(len(big) + 1, bool)
        kept[:-1] = ~dead
        active = kept.take(place)
        for number, missed in starved:
            hit = np.concatenate((missed, [False])).take(place)
            active &= ~(hit & graph.enabled(number))
    return None


def _only(graph: Graph, states: Index) -> Flags:
    flags = np.zeros(graph.count, bool)
    flags[states] = True
    return flags


def _components(graph: Graph, active: Flags, states: Index) -> tuple[Index, Index]:
    edges = graph.edges_from(states)
    inside = active.take(graph.target.take(edges))
    edges = edges[inside]
    compact = np.cumsum(active, dtype=np.int32) - 1
    target = compact.take(graph.target.take(edges))
    degree = np.bincount(compact.take(graph.source.take(edges)), minlength=len(states))
    start = np.zeros(len(states) + 1, np.int32)
    np.cumsum(degree, out=start[1:])
    matrix = csr_matrix((np.ones(len(edges), np.int8), target, start), shape=(len(states), len(states)))
    count, labels = connected_components(matrix, directed=True, connection="strong")
    return labels, np.bincount(labels, minlength=count)


def _lasso(graph: Graph, lasso: _Lasso) -> tuple[list[Row], int]:
    """Rows of a counterexample and the length of its prefix."""
    model = graph.model
    _, by, entry = graph.reach(lasso.seeds, lasso.alive, lasso.component)
    middle = _walk_back(graph, by, entry)
    first = int(graph.source[middle[0]]) if middle else entry
    level, below = 0, 0
    while below + len(graph.levels[level][0]) <= first:
        below += len(graph.levels[level][0])
        level += 1
    rows = path_to(model, graph.levels, state_at(graph.words, first), level, lambda words: words)
    rows += [_row_of(graph, edge) for edge in middle]
    cycle = _cycle(graph, lasso.component, entry)
    return [*rows, *(_row_of(graph, edge) for edge in cycle)], len(rows)


def _walk_back(graph: Graph, by: Index, state: int) -> list[int]:
    edges: list[int] = []
    while by[state] >= 0:
        edges.append(int(by[state]))
        state = int(graph.source[edges[-1]])
    return edges[::-1]


def _row_of(graph: Graph, edge: int) -> Row:
    """The row that takes an edge: the graph keeps groups only, so the state is expanded once more."""
    source, target = int(graph.source[edge]), int(graph.target[edge])
    batch = graph.model.expander.expand([w[source : source + 1] for w in graph.words])
    wanted = state_at(graph.words, target)
    group = int(graph.group[edge])
    for i in range(len(batch.row)):
        row = int(batch.row[i])
        if state_at(batch.words, i) == wanted and graph.group_of_row(row) == group:
            return graph.model.rows[row]
    raise EngineError("an edge of the graph has no action")


def _cycle(graph: Graph, component: Flags, entry: int) -> list[int]:
    """A closed walk inside the component that is fair to every group."""
    walk: list[int] = []
    here = entry
    if component.sum() == 1:
        return walk
    for number, group in enumerate(graph.groups):
        edges = graph.edges_of[number]
        inside = edges[component.take(graph.source.take(edges)) & component.take(graph.target.take(edges))]
        enabled = graph.enabled(number)
        visited = [entry, *(int(graph.target[e]) for e in walk)]
        if any(int(graph.group[e]) == number for e in walk) or not (component & enabled).any():
            continue
        if not group.strong:
            if not enabled.take(visited).all():
                continue
            calm = component & ~enabled
            if calm.any():
                more, here = _go(graph, component, here, calm)
                walk += more
                continue
        goal = _only(graph, graph.source.take(inside).astype(np.intp))
        more, here = _go(graph, component, here, goal)
        step = int(inside[np.flatnonzero(graph.source.take(inside) == here)[0]])
        walk += [*more, step]
        here = int(graph.target[step])
    if not walk:
        edges = graph.edges_from(np.array([entry], np.intp))
        step = int(edges[np.flatnonzero(component.take(graph.target.take(edges)))[0]])
        walk, here = [step], int(graph.target[step])
    back, _ = _go(graph, component, here, _only(graph, np.array([entry], np.intp)))
    return walk + back


def _go(graph: Graph, component: Flags, here: int, goal: Flags) -> tuple[list[int], int]:
    _, by, there = graph.reach(np.array([here], np.intp), component, goal)
    return _walk_back(graph, by, there), there


def _replayed(
    model: Model, prop: Property, binding: dict[str, Any], rows: list[Row], prefix: int
) -> tuple[TraceStep, ...]:
    """The steps to show, after the reference evaluator has confirmed that the lasso is one."""
    state = ev.initial(model.machine, model.domain)
    states = [state]
    steps: list[TraceStep] = []
    for row in rows:
        more, state = replay(model, [row], state)
        steps += more
        states.append(state)
    contexts = [ev.Context(model.domain, s) for s in states]
    met = [bool(ev.evaluate(prop.consequent, c, binding)) for c in contexts]
    open_from = max((i + 1 for i, m in enumerate(met) if m), default=0)
    begun = any(ev.evaluate(prop.antecedent, c, binding) for c in contexts[open_from : prefix + 1])
    if states[prefix] != states[-1] or not begun:
        raise EngineError(f"the reference evaluator does not confirm the lasso against {prop.name}")
    return tuple(steps)
