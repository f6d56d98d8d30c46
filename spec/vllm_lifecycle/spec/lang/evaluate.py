"""Concrete evaluation: the reference meaning of terms, slow and plain; every other engine is checked against it.

A concrete state is a mapping from cells to values; a cell is `(variable, arguments)`. Individuals of an uninterpreted sort
are any hashable values listed by a `Domain`. `step` and `instances` make the naive interpreter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, product
from typing import Any, assert_never

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param, range_of
from vllm_lifecycle.spec.lang.sorts import (
    BoolSort,
    DefinitionError,
    EnumSort,
    IntSort,
    Sort,
    UninterpretedSort,
)

Cell = tuple[str, tuple[Hashable, ...]]
Valuation = Mapping[Cell, Any]
Binding = Mapping[str, Any]


@dataclass(frozen=True)
class Domain:
    """The individuals of each uninterpreted sort (by sort name) and the values of the rigid constants.

    `choices` restricts the values that action parameters of an enum sort (by class name) take in the exploration.
    """

    individuals: Mapping[str, tuple[Hashable, ...]]
    constants: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, tuple[Enum, ...]] = field(default_factory=dict)

    def of(self, sort: Sort) -> tuple[Any, ...]:
        """All values of a sort; DefinitionError when the domain does not say how many there are."""
        match sort:
            case BoolSort():
                return (False, True)
            case EnumSort():
                return sort.members
            case IntSort():
                return tuple(range_of(sort, self.constants))
            case UninterpretedSort(name):
                if name not in self.individuals:
                    raise DefinitionError(f"the scope gives no individuals of sort {name}: give it a size")
                return self.individuals[name]
            case _:
                assert_never(sort)


@dataclass(frozen=True)
class Context:
    """Where a term is evaluated: domain, state before, state after (for primed reads) and parameter values."""

    domain: Domain
    before: Valuation
    after: Valuation | None = None


def evaluate(term: t.Term, context: Context, binding: Binding) -> Any:
    """The value of a term; `binding` gives parameters by name (a set-valued one as a frozenset)."""
    match term:
        case t.Lit(value):
            return value
        case t.Var(name):
            return binding[name]
        case t.Const(name):
            return context.domain.constants[name]
        case t.Read(var, args, _, primed):
            cell = (var, tuple(evaluate(a, context, binding) for a in args))
            source = context.after if primed else context.before
            if source is None:
                raise DefinitionError(f"{var} is read in the state after a step, but only one state is given")
            return source[cell]
        case t.InSet(name, element):
            return evaluate(element, context, binding) in binding[name]
        case t.Not(arg):
            return not evaluate(arg, context, binding)
        case t.And(args):
            return all(evaluate(a, context, binding) for a in args)
        case t.Or(args):
            return any(evaluate(a, context, binding) for a in args)
        case t.Eq(left, right):
            return evaluate(left, context, binding) == evaluate(right, context, binding)
        case t.Le(left, right):
            return evaluate(left, context, binding) <= evaluate(right, context, binding)
        case t.Add(left, right):
            return evaluate(left, context, binding) + evaluate(right, context, binding)
        case t.Sub(left, right):
            return evaluate(left, context, binding) - evaluate(right, context, binding)
        case t.Ite(cond, then, other):
            return evaluate(then if evaluate(cond, context, binding) else other, context, binding)
        case t.ForAll(variables, body):
            return all(
                evaluate(body, context, {**binding, **b}) for b in assignments(variables, context.domain)
            )
        case t.Exists(variables, body):
            return any(
                evaluate(body, context, {**binding, **b}) for b in assignments(variables, context.domain)
            )
        case _:
            assert_never(term)


def assignments(variables: tuple[t.Var, ...], domain: Domain) -> Iterator[dict[str, Any]]:
    """All values of some variables."""
    names = [v.name for v in variables]
    for values in product(*(domain.of(v.sort) for v in variables)):
        yield dict(zip(names, values, strict=True))


def bindings(params: tuple[Param, ...], domain: Domain) -> Iterator[dict[str, Any]]:
    """All values of some parameters, set-valued ones included (every subset, smaller ones first)."""
    choices: list[tuple[Any, ...]] = []
    for param in params:
        values = domain.of(param.sort)
        if param.is_set:
            choices.append(
                tuple(frozenset(c) for n in range(len(values) + 1) for c in combinations(values, n))
            )
        else:
            choices.append(values)
    names = [p.name for p in params]
    for combination in product(*choices):
        yield dict(zip(names, combination, strict=True))


def cells(machine: Machine, domain: Domain) -> tuple[Cell, ...]:
    """All cells of a machine in a domain, in declaration order."""
    return tuple(
        (var.name, args) for var in machine.vars for args in product(*(domain.of(s) for s in var.args))
    )


def initial(machine: Machine, domain: Domain) -> dict[Cell, Any]:
    """The initial state."""
    return {(name, args): machine.var(name).init.value for name, args in cells(machine, domain)}


def enabled(action: Action, state: Valuation, domain: Domain, binding: Binding) -> bool:
    """Whether every guard of an action holds."""
    context = Context(domain, state)
    return all(evaluate(g.term, context, binding) for g in action.guards)


def step(
    machine: Machine, action: Action, state: Valuation, domain: Domain, binding: Binding
) -> dict[Cell, Any]:
    """The state after an enabled action; DefinitionError when a number leaves its range."""
    context = Context(domain, state)
    after = dict(state)
    for name, function in action.updates:
        var = machine.var(name)
        allowed = frozenset(domain.of(var.sort)) if isinstance(var.sort, IntSort) else None
        for args in product(*(domain.of(s) for s in var.args)):
            local = {**binding, **{p.name: v for p, v in zip(function.params, args, strict=True)}}
            value = evaluate(function.body, context, local)
            if allowed is not None and value not in allowed:
                raise out_of_range(action, (name, args), value, var.sort)
            after[name, args] = value
    return after


def out_of_range(action: Action, cell: Cell, value: object, sort: Sort) -> DefinitionError:
    """What is raised when an action takes a number out of its range."""
    name, args = cell
    return DefinitionError(f"{action.name} takes {name}{args} to {value}, outside {sort}: guard the action")


def instances(machine: Machine, domain: Domain) -> Iterator[tuple[Action, dict[str, Any]]]:
    """All (action, parameter values) pairs."""
    for action in machine.actions:
        limited = {
            p.name: domain.choices[str(p.sort)] for p in action.params if str(p.sort) in domain.choices
        }
        for binding in bindings(action.params, domain):
            if all(binding[name] in allowed for name, allowed in limited.items()):
                yield action, binding


def successors(
    machine: Machine, state: Valuation, domain: Domain
) -> Iterator[tuple[Action, dict[str, Any], dict[Cell, Any]]]:
    """The naive interpreter: every enabled action instance with the state after it."""
    for action, binding in instances(machine, domain):
        if enabled(action, state, domain, binding):
            yield action, binding, step(machine, action, state, domain, binding)


def violations(params: tuple[Param, ...], claim: t.Term, context: Context) -> Iterator[dict[str, Any]]:
    """Parameter values for which a claim is false in a concrete state (or step)."""
    for binding in bindings(params, context.domain):
        if not evaluate(claim, context, binding):
            yield binding
