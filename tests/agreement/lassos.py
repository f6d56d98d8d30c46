"""Progress judged in plain Python: is there a fair run that owes something for ever? The definition, on the naive graph.

A run ends up in a strong component, or stays in one state. Fairness is per action instance with its scalar parameters; only
steps that change the state count.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.agreement.naive import Key, Naive

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Fairness, Machine, Property

Instance = tuple[str, tuple[tuple[str, Any], ...]]


def with_fairness(machine: Machine, seed: int) -> Machine:
    """The machine with random fairness of its actions."""
    rng = random.Random(seed)
    kinds = (Fairness.NONE, Fairness.WEAK, Fairness.WEAK, Fairness.STRONG)
    return replace(
        machine, actions=tuple(replace(a, fairness=rng.choice(kinds)) for a in machine.actions), _index={}
    )


class Judge:
    """The fair runs of a machine whose states are all known."""

    def __init__(self, machine: Machine, domain: ev.Domain, naive: Naive) -> None:
        self.cells = ev.cells(machine, domain)
        self.domain = domain
        self.fair = {a.name: a.fairness for a in machine.actions}
        scalars = {a.name: {p.name for p in a.params if not p.is_set} for a in machine.actions}
        self.edges: dict[Key, list[tuple[Instance, Key]]] = {
            state: [
                ((name, tuple((k, v) for k, v in binding if k in scalars[name])), after)
                for name, binding, after in outs
                if after != state
            ]
            for state, outs in naive.steps.items()
        }
        self.enabled = {state: {i for i, _ in outs} for state, outs in self.edges.items()}

    def refutes(self, prop: Property) -> bool:
        """Whether some fair run meets the antecedent and then never the consequent."""
        return any(self._owes(prop, binding) for binding in ev.bindings(prop.params, self.domain))

    def _owes(self, prop: Property, binding: ev.Binding) -> bool:
        def holds(term: Any, state: Key) -> bool:
            context = ev.Context(self.domain, dict(zip(self.cells, state, strict=True)))
            return bool(ev.evaluate(term, context, binding))

        owing = {s for s in self.edges if not holds(prop.consequent, s)}
        front = [s for s in owing if holds(prop.antecedent, s)]
        reached = set(front)
        while front:
            more = {n for _, n in self.edges[front.pop()] if n in owing} - reached
            reached |= more
            front += more
        return self._has_a_fair_run(reached)

    def _has_a_fair_run(self, within: set[Key]) -> bool:
        for part in components(within, lambda s: [n for _, n in self.edges[s] if n in within]):
            if any(all(self.fair[i[0]] is Fairness.NONE for i in self.enabled[s]) for s in part):
                return True
            taken = {i for s in part for i, n in self.edges[s] if n in part}
            if not taken:
                continue
            waiting = {i for s in part for i in self.enabled[s]} - taken
            weak = {i for i in waiting if self.fair[i[0]] is Fairness.WEAK}
            if any(all(i in self.enabled[s] for s in part) for i in weak):
                continue
            strong = {i for i in waiting if self.fair[i[0]] is Fairness.STRONG}
            if not strong or self._has_a_fair_run({s for s in part if not self.enabled[s] & strong}):
                return True
        return False


def components(states: set[Key], following: Callable[[Key], list[Key]]) -> Iterator[set[Key]]:
    """The strong components, by reachability in both directions (small graphs only)."""

    def reach(start: Key, step: Callable[[Key], list[Key]]) -> set[Key]:
        found, front = {start}, [start]
        while front:
            more = set(step(front.pop())) - found
            found |= more
            front += more
        return found

    before: dict[Key, list[Key]] = {s: [] for s in states}
    for state in states:
        for other in following(state):
            before[other].append(state)
    left = set(states)
    while left:
        start = next(iter(left))
        part = reach(start, following) & reach(start, before.__getitem__)
        yield part
        left -= part
