"""Compiled evaluation means what the reference evaluator means, on any state, reachable or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agreement.sizes import domain
from tests.agreement.specs import example
from tests.lang.vocabulary import DOMAIN, PARAMS, THING, VARS, Binding, State, terms, worlds

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.codegen import parts_of, submasks
from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.machine import Machine, Param, StateVar
from vllm_lifecycle.spec.lang.sorts import BOOL, DefinitionError, IntSort
from vllm_lifecycle.spec.lifecycles.system import SYSTEM


def _var(name: str) -> StateVar:
    args, sort = VARS[name]
    first: Any = 0 if isinstance(sort, IntSort) else DOMAIN.of(sort)[0]
    return StateVar(name, args, sort, t.Lit(first, sort), "m", False, "")


MACHINE = Machine("vocabulary", tuple(map(_var, VARS)), (), (), (), (), (), ())
PROGRAM = Program(MACHINE, DOMAIN)
ALL = (*(Param(name, sort) for name, sort in PARAMS.items()), Param("chosen", THING, is_set=True))


many = settings(max_examples=300)
Worlds = list[tuple[State, Binding]]


@given(worlds())
def test_packing_loses_nothing(seen: Worlds) -> None:
    layout = PROGRAM.layout
    for state, binding in seen:
        assert layout.unpack(layout.pack(state)) == state
        assert layout.binding(ALL, layout.arguments(ALL, binding)) == binding


@many
@given(terms(BOOL, PARAMS, 3, primed=True), worlds(2))
def test_the_finder_finds_what_evaluation_finds(term: t.Term, seen: Worlds) -> None:
    before, after = (state for state, _ in seen)
    context = ev.Context(DOMAIN, before, after)
    used = {v.name for v in t.free_vars(term)} | {n.set_name for n in t.walk(term) if isinstance(n, t.InSet)}
    params = tuple(p for p in ALL if p.name in used)
    layout = PROGRAM.layout
    found = PROGRAM.where(params, term)(layout.pack(before), layout.pack(after))
    mine = [layout.binding(params, arguments) for arguments in found]
    reference = [b for b in ev.bindings(params, DOMAIN) if ev.evaluate(term, context, b)]
    assert len(mine) == len(reference)
    assert all(b in reference for b in mine)


@many
@given(terms(BOOL, PARAMS), worlds())
def test_the_parts_of_a_condition_are_together_the_condition(term: t.Term, seen: Worlds) -> None:
    for state, binding in seen:
        context = ev.Context(DOMAIN, state)
        together = all(ev.evaluate(p, context, binding) for p in parts_of(term))
        assert together == ev.evaluate(term, context, binding)


@given(st.integers(0, 255))
def test_submasks_are_all_subsets_smaller_ones_first(mask: int) -> None:
    found = submasks(mask)
    assert set(found) == {m for m in range(mask + 1) if m & mask == m}
    assert [m.bit_count() for m in found] == sorted(m.bit_count() for m in found)


def test_every_enabled_instance_of_the_specification_along_a_walk() -> None:
    where = domain(2, 2, 1, 1)
    program = Program(SYSTEM, where)
    state = program.initial
    for step in range(12):
        valuation = program.layout.unpack(state)
        mine = {
            (a.name, tuple(a.binding(x).items()))
            for a in program.actions.values()
            for x in a.instances(state)
        }
        reference = {
            (a.name, tuple(b.items()))
            for a, b in ev.instances(SYSTEM, where)
            if ev.enabled(a, valuation, where, b)
        }
        assert mine == reference
        options = [(a, x, after) for a, x, after in program.successors(state) if after != state]
        action, arguments, after = options[(7 * step) % len(options)]
        expected = ev.step(SYSTEM, action.action, valuation, where, action.binding(arguments))
        assert program.layout.unpack(after) == expected
        for prop in SYSTEM.properties:
            if prop.kind != "progress":
                context = ev.Context(where, valuation, expected)
                fails = list(ev.violations(prop.params, prop.body, context))
                assert list(program.violations(prop, state, after)) == fails
        state = after


def test_a_step_property_needs_both_states() -> None:
    prop = next(p for p in SYSTEM.properties if p.kind == "step")
    program = Program(SYSTEM, domain(1, 1, 1, 1))
    with pytest.raises(DefinitionError, match="is a property of a step: give the state after it too"):
        next(program.violations(prop, program.initial))


def test_a_domain_that_leaves_something_open_is_refused() -> None:
    this = example(3)
    with pytest.raises(DefinitionError, match="the scope gives no individuals of sort"):
        Program(this.machine, ev.Domain({}, this.domain.constants))
    with pytest.raises(DefinitionError, match=r"constant .* has no value: give it one in the scope"):
        program = Program(SYSTEM, ev.Domain({s.name: (0,) for s in SYSTEM.sorts}))
        list(program.successors(program.initial))
