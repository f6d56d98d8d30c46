"""What a machine becomes when something is left out: projection adds behaviour, a slice is exact, features only restrict.

Each is checked on random specifications by running both machines with the reference evaluator.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.agreement.naive import Naive, search
from tests.agreement.sizes import domain
from tests.agreement.specs import Example, example

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

SEEDS = range(60)
MOST = 80


def kept(this: Example, part: Machine, state: tuple[Any, ...]) -> tuple[Any, ...]:
    """A state of the whole, seen through the variables of a part."""
    names = {v.name for v in part.vars}
    cells = ev.cells(this.machine, this.domain)
    return tuple(value for (name, _), value in zip(cells, state, strict=True) if name in names)


def parts(this: Example) -> list[Machine]:
    """The projections to one module each, with what their updates need."""
    return [this.machine.project(this.machine.closure([module])) for module in this.machine.modules]


def steps(naive: Naive) -> set[tuple[Any, Any]]:
    return {(before, after) for before, outs in naive.steps.items() for _, _, after in outs}


def test_every_step_of_the_whole_is_a_step_or_a_stutter_of_a_projection() -> None:
    projected = 0
    for this in map(example, SEEDS):
        whole = search(this.machine, this.domain, max_states=MOST)
        for part in parts(this):
            if len(part.vars) == len(this.machine.vars):
                continue
            projected += 1
            seen: dict[Any, set[Any]] = {}
            for before, after in steps(whole):
                small = kept(this, part, before)
                if small not in seen:
                    cells = ev.cells(part, this.domain)
                    state = dict(zip(cells, small, strict=True))
                    seen[small] = {tuple(s.values()) for _, _, s in ev.successors(part, state, this.domain)}
                assert kept(this, part, after) in seen[small] | {small}, this.seed
    assert projected >= 10


def test_what_falls_in_the_whole_falls_in_a_projection() -> None:
    for this in map(example, SEEDS):
        whole = search(this.machine, this.domain, max_states=MOST)
        for part in parts(this):
            names = {p.name for p in part.properties}
            small = search(part, this.domain, max_depth=whole.depth + 1, max_states=10_000)
            for name, length in whole.lengths.items():
                assert name not in names or small.lengths[name] <= length, (this.seed, name)


def test_a_slice_reaches_exactly_the_states_of_the_whole_seen_through_it() -> None:
    smaller = 0
    for this in map(example, SEEDS):
        whole = search(this.machine, this.domain, max_states=4 * MOST)
        if not whole.complete:
            continue
        states = set().union(*whole.levels)
        for prop in this.machine.properties:
            part = this.machine.slice(prop.reads)
            smaller += len(part.vars) < len(this.machine.vars)
            sliced = search(part, this.domain, max_states=4 * MOST)
            assert sliced.complete
            assert set().union(*sliced.levels) == {kept(this, part, state) for state in states}, this.seed
            assert sliced.lengths.get(prop.name) == whole.lengths.get(prop.name), (this.seed, prop.name)
    assert smaller >= 10


def test_features_take_behaviour_away_and_nothing_else() -> None:
    assert SYSTEM.with_features(SYSTEM.features).actions == SYSTEM.actions
    core = SYSTEM.with_features(["core"])
    assert {a.feature for a in core.actions} == {"core"}
    assert core.vars == SYSTEM.vars and core.properties == SYSTEM.properties
    small, all_ = Program(core, domain(1, 1, 1, 1)), Program(SYSTEM, domain(1, 1, 1, 1))
    mine = {(a.name, args, after) for a, args, after in small.successors(small.initial)}
    assert mine and mine < {(a.name, args, after) for a, args, after in all_.successors(all_.initial)}


def test_a_projection_keeps_what_it_can_speak_of_and_lists_the_guards_it_drops() -> None:
    part = SYSTEM.project(["steps"])
    names = {v.name for v in part.vars}
    assert names == {v.name for v in SYSTEM.vars if v.module == "steps"}
    for term in part.terms:
        assert t.reads(term) <= names
    assert part.dropped_guards
    for action, guard in part.dropped_guards:
        assert not t.reads(guard) <= names
        assert SYSTEM.action(action).guards
    for row in part.actions:
        whole = {part for g in SYSTEM.action(row.name).guards for part in t.conjuncts(g.term)}
        assert {g.term for g in row.guards} == {g for g in whole if t.reads(g) <= names}


def test_the_closure_is_the_least_that_can_be_projected() -> None:
    for module in SYSTEM.modules:
        closed = SYSTEM.closure([module])
        assert module in closed
        assert SYSTEM.closure(closed) == closed
        SYSTEM.project(closed)
        if len(closed) > 1:
            with pytest.raises(DefinitionError, match="include the module of those too"):
                SYSTEM.project([module])


def test_a_slice_of_everything_is_the_whole() -> None:
    whole = SYSTEM.slice(v.name for v in SYSTEM.vars)
    assert whole.vars == SYSTEM.vars
    assert whole.properties == SYSTEM.properties
    assert not whole.dropped_guards
    assert {a.name for a in whole.actions} == {a.name for a in SYSTEM.actions if a.updates}


def test_sorts_are_those_of_state_parameters_and_quantifiers() -> None:
    assert [s.name for s in SYSTEM.sorts] == ["Request", "Step", "Block", "Entry"]
    for this in map(example, SEEDS):
        used = {str(v.sort) for term in this.machine.terms for v in t.free_vars(term)}
        individuals = {name for name in this.domain.individuals if name in used}
        assert individuals <= {s.name for s in this.machine.sorts}
