"""A Hypothesis state machine generated from a specification: rules are actions, invariants are properties and counts.

Each step takes an enabled instance: Hypothesis chooses among the actions that are enabled, then among the enabled parameter
values; nothing is drawn and thrown away. Walks lead deep because each leaves some features (and, by Hypothesis, some rules)
out, and lets clients act only now and then, so that the scheduler gets somewhere between two disturbances. The compiled
program moves on, the reference evaluator must agree on guard and effect, the `transitions` machine of every object must
follow, and every property of a state or step must hold, ghosts included.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.codegen import Finder
from vllm_lifecycle.spec.lang.compiled import CompiledAction, Program
from vllm_lifecycle.spec.lang.machine import Count, Lifecycle, Machine, Property, Witness
from vllm_lifecycle.spec.lang.packed import Arguments
from vllm_lifecycle.statemachine.machines import Tracked


class Walk(RuleBasedStateMachine):
    """A walk through the states of a program; `state_machine` adds the rules and invariants."""

    program: ClassVar[Program]
    lifecycles: ClassVar[dict[int, Lifecycle]]
    states: ClassVar[tuple[Property, ...]]
    steps: ClassVar[tuple[Property, ...]]
    witnesses: ClassVar[dict[str, tuple[Witness, Finder]]]
    taken: ClassVar[Counter[str]]
    """How often each action was taken, over all walks."""
    found: ClassVar[set[str]]
    """The witnesses that some walk met."""

    def __init__(self) -> None:
        super().__init__()
        self.state = self.program.initial
        self.valuation = self.program.layout.unpack(self.state)
        self.features: set[str] = set()
        self.pace = 1
        self.quiet = 0
        self.tracked = {place: Tracked(lifecycle.name) for place, lifecycle in self.lifecycles.items()}
        self._enabled: dict[str, list[Arguments]] = {}

    @initialize(data=st.data())
    def choose(self, data: st.DataObject) -> None:
        """Features of this walk, and how many steps of others lie between two of the clients'."""
        optional = [f for f in self.program.machine.features if f != "core"]
        self.features = {"core"} | {f for f in optional if data.draw(st.booleans(), label=f)}
        self.pace = data.draw(st.integers(1, 12))

    def allowed(self, action: CompiledAction) -> bool:
        """Whether the walk may take the action now: it is enabled, and it is not for clients to wait."""
        if action.action.feature not in self.features or not self.enabled(action):
            return False
        if action.action.by != "client" or self.quiet >= self.pace:
            return True
        others = (a for a in self.program.actions.values() if a.action.by != "client")
        return not any(a.action.feature in self.features and self.enabled(a) for a in others)

    def enabled(self, action: CompiledAction) -> list[Arguments]:
        """The enabled arguments of an action in the present state."""
        if action.name not in self._enabled:
            self._enabled[action.name] = list(action.instances(self.state))
        return self._enabled[action.name]

    @invariant()
    def every_property_of_a_state_holds(self) -> None:
        """The state properties, and the counts."""
        for prop in self.states:
            fails = next(self.program.violations(prop, self.state), None)
            assert fails is None, f"{prop.name} fails for {fails}"
        for count in self.program.machine.counts:
            self.check_count(count)

    def check_count(self, count: Count) -> None:
        """The counter is the number (or, for numbers, the sum) of what it counts."""
        domain = self.program.domain
        context = ev.Context(domain, self.valuation)
        for binding in ev.bindings(count.args, domain):
            others = ({**binding, count.over.name: x} for x in domain.of(count.over.sort))
            total = sum(int(ev.evaluate(count.member, context, b)) for b in others)
            counter = self.valuation[count.counter, tuple(binding.values())]
            assert counter == total, f"{count.counter} is {counter}, not {total}, for {binding}"

    def take(self, action: CompiledAction, arguments: Arguments) -> None:
        """Take one step, in every way of taking it."""
        binding = action.binding(arguments)
        note(f"{action.name}({', '.join(f'{k}={text.value(v)}' for k, v in binding.items())})")
        layout, domain = self.program.layout, self.program.domain
        before, after = self.state, action.step(self.state, arguments)
        assert ev.enabled(action.action, self.valuation, domain, binding)
        stepped = ev.step(self.program.machine, action.action, self.valuation, domain, binding)
        assert layout.unpack(after) == stepped, "the compiled step differs from the reference"
        for place, tracked in self.tracked.items():
            if before[place] != after[place]:
                target = stepped[layout.cells[place]]
                assert isinstance(target, Enum)
                tracked.table.check(tracked.state, action.name, target)
                tracked.move(action.name, target)
        for prop in self.steps:
            fails = next(self.program.violations(prop, before, after), None)
            assert fails is None, f"{prop.name} fails for {fails}"
        for name, (witness, finder) in self.witnesses.items():
            if (
                name not in self.found
                and next(finder(before if witness.on_step else after, after), None) is not None
            ):
                self.found.add(name)
        self.taken[action.name] += 1
        self.state, self.valuation = after, stepped
        self.quiet = 0 if action.action.by == "client" else self.quiet + 1
        self._enabled = {}


def state_machine(machine: Machine, domain: ev.Domain) -> type[Walk]:
    """The state machine of a specification in a domain."""
    program = Program(machine, domain)
    cells = list(enumerate(program.layout.cells))
    lifecycles = {
        place: lifecycle
        for lifecycle in machine.lifecycles
        for place, (name, args) in cells
        if name == lifecycle.var and _is_at(lifecycle, args)
    }
    members: dict[str, Any] = {
        "program": program,
        "lifecycles": lifecycles,
        "states": tuple(p for p in machine.properties if p.kind == "state"),
        "steps": tuple(p for p in machine.properties if p.kind == "step"),
        "witnesses": {w.name: (w, program.where(w.params, w.term)) for w in machine.witnesses},
        "taken": Counter(),
        "found": set(),
    }
    for action in program.actions.values():
        members[action.name] = _rule(action)
    return type(f"{machine.name}_walk", (Walk,), members)


def _is_at(lifecycle: Lifecycle, args: tuple[Any, ...]) -> bool:
    return all(f is None or f.value == a for f, a in zip(lifecycle.index, args, strict=True))


def _rule(action: CompiledAction) -> Any:
    def take(self: Walk, data: st.DataObject) -> None:
        choices = self.enabled(action)
        self.take(action, choices[data.draw(st.integers(0, len(choices) - 1), label=action.name)])

    take.__name__ = action.name
    return precondition(lambda self: self.allowed(action))(rule(data=st.data())(take))
