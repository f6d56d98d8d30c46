"""The naive interpreter as a search: breadth-first over states as plain tuples, every term evaluated by `lang.evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine

Key = tuple[Any, ...]


@dataclass
class Naive:
    """What the naive search saw: states by depth, the steps taken, and where each property first fell."""

    levels: list[set[Key]] = field(default_factory=list)
    transitions: int = 0
    lengths: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    fault: str = ""
    steps: dict[Key, list[tuple[str, tuple[tuple[str, Any], ...], Key]]] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        """New states by depth."""
        return [len(level) for level in self.levels]

    @property
    def depth(self) -> int:
        """The last depth whose states were all found."""
        return len(self.levels) - 1

    def images(self) -> Iterator[set[Key]]:
        """States that exactly n steps can lead to, for n = 0, 1, ..., as far as the steps are known."""
        image = set(self.levels[0])
        yield image
        while all(state in self.steps for state in image) and image:
            image = {after for state in image for _, _, after in self.steps[state]}
            yield image


def search(machine: Machine, domain: ev.Domain, max_depth: int = 50, max_states: int = 200) -> Naive:
    """Whole levels until a bound is passed; `fault` is set where a number left its range."""
    result = Naive()
    cells = ev.cells(machine, domain)
    claims = [p for p in machine.properties if p.kind != "progress"]

    def note(kind: str, length: int, before: ev.Valuation, after: ev.Valuation | None) -> None:
        for prop in claims:
            if prop.kind == kind and prop.name not in result.lengths:
                context = ev.Context(domain, before, after)
                if next(ev.violations(prop.params, prop.body, context), None) is not None:
                    result.lengths[prop.name] = length

    start = ev.initial(machine, domain)
    frontier = {tuple(start.values()): start}
    seen = set(frontier)
    while frontier:
        depth = len(result.levels)
        for state in frontier.values():
            note("state", depth, state, None)
        result.levels.append(set(frontier))
        if depth >= max_depth or len(seen) > max_states:
            return result
        following: dict[Key, dict[ev.Cell, Any]] = {}
        for key, state in frontier.items():
            out = result.steps.setdefault(key, [])
            try:
                for action, binding, after in ev.successors(machine, state, domain):
                    target = tuple(after[c] for c in cells)
                    out.append((action.name, tuple(binding.items()), target))
                    note("step", depth + 1, state, after)
                    if target not in seen:
                        following[target] = after
            except ValueError as error:
                result.fault = str(error)
                return result
            result.transitions += len(out)
        frontier = following
        seen |= set(frontier)
    result.complete = True
    return result
