"""Smart constructors, substitution and transformation keep the meaning that evaluation gives to terms."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lang.vocabulary import (
    DOMAIN,
    PARAMS,
    PLACE,
    THING,
    VARS,
    Binding,
    State,
    any_sort,
    claims,
    terms,
    worlds,
)

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import Context, evaluate
from vllm_lifecycle.spec.lang.sorts import BOOL

any_term = any_sort.flatmap(lambda sort: terms(sort, PARAMS))
many = settings(max_examples=300)
Worlds = list[tuple[State, Binding]]


def value(term: t.Term, state: State, binding: Binding) -> Any:
    return evaluate(term, Context(DOMAIN, state), binding)


def rebuilt(term: t.Term) -> t.Term:
    """The same term through the smart constructors, bottom-up."""
    return t.rebuild(term, tuple(rebuilt(child) for child in t.children(term)))


@many
@given(any_term, worlds())
def test_smart_constructors_keep_the_meaning(term: t.Term, seen: Worlds) -> None:
    for state, binding in seen:
        assert value(rebuilt(term), state, binding) == value(term, state, binding)


@many
@given(any_term)
def test_smart_constructors_are_done_after_one_pass_and_leave_no_plain_literal(term: t.Term) -> None:
    for node in t.walk(rebuilt(term)):
        if isinstance(node, t.And | t.Or):
            assert len(node.args) >= 2 and len(set(node.args)) == len(node.args)
            assert not any(isinstance(arg, type(node)) or arg in (t.TRUE, t.FALSE) for arg in node.args)
        if isinstance(node, t.Not):
            assert not isinstance(node.arg, t.Not | t.Lit)
        if isinstance(node, t.ForAll | t.Exists):
            assert set(node.vars) <= t.free_vars(node.body)


@many
@given(any_term, worlds(2))
def test_the_meaning_depends_on_free_variables_only(term: t.Term, seen: Worlds) -> None:
    (state, binding), (_, other) = seen
    free = {v.name for v in t.free_vars(term)} | {"chosen"}
    mixed = {name: binding[name] if name in free else other[name] for name in binding}
    assert value(term, state, mixed) == value(term, state, binding)


replacements = st.fixed_dictionaries({name: terms(sort, PARAMS, 1) for name, sort in PARAMS.items()})


@many
@given(claims(PARAMS, 4), replacements, worlds())
def test_substitution_avoids_capture(term: t.Term, new: dict[str, t.Term], seen: Worlds) -> None:
    mapping = {t.Var(name, PARAMS[name]): n for name, n in new.items()}
    result = t.substitute(term, mapping)
    for state, binding in seen:
        replaced = {name: value(n, state, binding) for name, n in new.items()}
        assert value(result, state, binding) == value(term, state, {**binding, **replaced})


def test_a_bound_variable_of_another_sort_does_not_capture() -> None:
    x_place, x_thing, y = t.Var("x", PLACE), t.Var("x", THING), t.Var("y", THING)
    table = t.ForAll((x_place,), t.Read("table", (y, x_place), BOOL))
    result = t.substitute(table, {y: x_thing})
    assert isinstance(result, t.ForAll)
    (renamed,) = result.vars
    assert renamed.name != "x"
    assert result.body == t.Read("table", (x_thing, renamed), BOOL)


def generic(name: str) -> tuple[t.Var, ...]:
    """Variables for the arguments of a state variable."""
    return tuple(t.Var(f"@{i}", sort) for i, sort in enumerate(VARS[name][0]))


def bodies(name: str) -> st.SearchStrategy[t.Term]:
    """Next values of a variable over its generic arguments and the parameters; often the opposite of what it was."""
    sort = VARS[name][1]
    drawn = terms(sort, {**{v.name: v.sort for v in generic(name)}, **PARAMS}, 2)
    if sort != BOOL:
        return drawn
    return st.just(t.Not(t.Read(name, generic(name), BOOL))) | drawn


functions = st.fixed_dictionaries({}, optional={name: bodies(name) for name in VARS})


@many
@given(claims({}, 4), functions, worlds(3))
def test_a_claim_after_a_step_is_the_claim_about_the_next_state(
    claim: t.Term, updates: dict[str, t.Term], seen: Worlds
) -> None:
    def leaf(node: t.Term) -> t.Term | None:
        if isinstance(node, t.Read) and node.var in updates:
            return t.Function(generic(node.var), updates[node.var])(*node.args)
        return None

    term = with_binders_of_its_own(claim)
    result = t.transform(term, leaf)
    for state, binding in seen:
        after = dict(state)
        for name, body in updates.items():
            for args in product(*(DOMAIN.of(s) for s in VARS[name][0])):
                local = {**binding, **{f"@{i}": a for i, a in enumerate(args)}}
                after[name, args] = value(body, state, local)
        assert value(result, state, binding) == value(term, after, binding)


def with_binders_of_its_own(term: t.Term) -> t.Term:
    """The term with binders that no parameter is named like, as a claim about a step has to have."""
    match term:
        case t.ForAll(variables, body) | t.Exists(variables, body):
            fresh = tuple(t.Var(f"{v.name}.", v.sort) for v in variables)
            inner = with_binders_of_its_own(body)
            return type(term)(fresh, t.substitute(inner, dict(zip(variables, fresh, strict=True))))
        case t.Lit() | t.Var() | t.Const():
            return term
        case _:
            return t.rebuild(term, tuple(with_binders_of_its_own(c) for c in t.children(term)))


def test_what_a_folded_node_lets_surface_is_not_replaced_again() -> None:
    on = t.Read("on", (), BOOL)
    assert t.transform(t.Not(on), lambda node: t.Not(on) if node == on else None) == on


@many
@given(terms(BOOL, PARAMS), worlds())
def test_conjuncts_are_together_the_term(term: t.Term, seen: Worlds) -> None:
    parts = t.conjuncts(rebuilt(term))
    for state, binding in seen:
        assert all(value(p, state, binding) for p in parts) == value(term, state, binding)
