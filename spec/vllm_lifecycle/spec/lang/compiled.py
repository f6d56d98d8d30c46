"""Compiled evaluation: a machine as Python code over packed states, for one domain.

The meaning is that of `evaluate`, which a test holds this module to; the speed is some hundred times that. `Program` is for
walks, simulations and the properties of observed states; the exhaustive searches of `check/explicit` go further still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.codegen import Emitter, Finder, parts_of
from vllm_lifecycle.spec.lang.evaluate import Domain, initial, out_of_range
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param, Property
from vllm_lifecycle.spec.lang.packed import Arguments, Layout, Packed
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort


class Program:
    """A machine compiled for one domain; DefinitionError when the domain leaves a size or constant open."""

    def __init__(self, machine: Machine, domain: Domain) -> None:
        self.machine = machine
        self.domain = domain
        self.layout = Layout(machine, domain)
        self._denials: dict[str, Finder] = {}
        self.initial = self.layout.pack(initial(machine, domain))

    @cached_property
    def actions(self) -> dict[str, CompiledAction]:
        """The actions by name, compiled."""
        return {action.name: CompiledAction(self, action) for action in self.machine.actions}

    def successors(self, state: Packed) -> Iterator[tuple[CompiledAction, Arguments, Packed]]:
        """Every enabled action instance with the state after it."""
        for action in self.actions.values():
            for arguments in action.instances(state):
                yield action, arguments, action.step(state, arguments)

    def where(self, params: tuple[Param, ...], term: t.Term) -> Finder:
        """A function from a state (and the one after a step) to the arguments for which a condition holds; to be kept."""
        return Emitter(self.layout).finder(params, parts_of(term), {})

    def violations(
        self, prop: Property, before: Packed, after: Packed | None = None
    ) -> Iterator[dict[str, Any]]:
        """Parameter values for which a property is false in a state, or in the step from `before` to `after`.

        A property is known by its name: two of the same name are taken for the same.
        """
        if prop.kind == "step" and after is None:
            raise DefinitionError(f"{prop.name} is a property of a step: give the state after it too")
        if prop.name not in self._denials:
            self._denials[prop.name] = self.where(prop.params, t.neg(prop.body))
        for arguments in self._denials[prop.name](before, after):
            yield self.layout.binding(prop.params, arguments)


@dataclass(frozen=True)
class CompiledAction:
    """One action of a program: which arguments are enabled, and what it does."""

    program: Program
    action: Action

    @property
    def name(self) -> str:
        """The action's name."""
        return self.action.name

    @cached_property
    def _find(self) -> Finder:
        domain = self.program.domain
        chosen = {
            p.name: tuple(self.program.layout.code(p.sort, v) for v in domain.choices[str(p.sort)])
            for p in self.action.params
            if str(p.sort) in domain.choices
        }
        parts = tuple(part for g in self.action.guards for part in t.conjuncts(g.term))
        return Emitter(self.program.layout).finder(self.action.params, parts, chosen)

    @cached_property
    def _run(self) -> Callable[[Packed, Arguments], list[int]]:
        return Emitter(self.program.layout).stepper(self.action)

    def instances(self, state: Packed) -> Iterator[Arguments]:
        """The arguments for which every guard holds."""
        return self._find(state, None)

    def step(self, state: Packed, arguments: Arguments) -> Packed:
        """The state after the (enabled) action; DefinitionError when a number leaves its range."""
        after = self._run(state, arguments)
        for start, end, low, high in self._numbers:
            if min(after[start:end]) < low or max(after[start:end]) > high:
                self._refuse(after)
        return tuple(after)

    @cached_property
    def _numbers(self) -> tuple[tuple[int, int, int, int], ...]:
        """First and last place, and least and greatest value, of the numbers that the action assigns."""
        layout, domain = self.program.layout, self.program.domain
        found = []
        for name, _ in self.action.updates:
            sort = self.program.machine.var(name).sort
            if isinstance(sort, IntSort):
                start, size = layout.place(name)[0], sum(1 for var, _ in layout.cells if var == name)
                found.append((start, start + size, domain.of(sort)[0], domain.of(sort)[-1]))
        return tuple(found)

    def _refuse(self, after: list[int]) -> None:
        for start, end, low, high in self._numbers:
            for i in range(start, end):
                if not low <= after[i] <= high:
                    cell = self.program.layout.cells[i]
                    raise out_of_range(self.action, cell, after[i], self.program.machine.var(cell[0]).sort)

    def binding(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments by name, as values."""
        return self.program.layout.binding(self.action.params, arguments)
