"""Lifecycle edges read off the actions: from which state to which an action may take one object.

For each action that assigns the lifecycle's variable: the source states are those for which the guards about this very
object do not fold to false; the target states are what the assigned value can be. The answer over-approximates (a guard
about other state is ignored), so an edge that is missing here is surely impossible; the explicit search shows which
edges are really taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Lifecycle, Machine
from vllm_lifecycle.spec.lang.sorts import BoolSort, EnumSort


@dataclass(frozen=True, slots=True)
class Edge:
    """One action takes an object of a lifecycle from `source` to `target`."""

    source: Enum
    target: Enum
    action: str


def edges(machine: Machine, lifecycle: Lifecycle) -> tuple[Edge, ...]:
    """All edges of a lifecycle, in order of the actions, self-loops left out."""
    found: dict[Edge, None] = {}
    for action in machine.actions:
        for source, target in _moves(machine, lifecycle, action):
            if source is not target:
                found[Edge(source, target, action.name)] = None
    return tuple(found)


def _moves(machine: Machine, lifecycle: Lifecycle, action: Action) -> Iterator[tuple[Enum, Enum]]:
    function = action.update(lifecycle.var)
    var = machine.var(lifecycle.var)
    if function is None or not isinstance(var.sort, EnumSort):
        return
    place: list[t.Term] = [
        param if fixed is None else fixed
        for param, fixed in zip(function.params, lifecycle.index, strict=True)
    ]
    for args, written in _writes(function(*place)):
        here = tuple(t.substitute(p, args) for p in place)
        for source in var.sort.members:
            for choice in _choices(action):
                known = {**choice, **args}
                if _fold(t.substitute(action.guard, known), var.name, here, source) == t.FALSE:
                    continue
                for target in _values(_fold(t.substitute(written, known), var.name, here, source)):
                    yield source, target


def _choices(action: Action) -> Iterator[dict[t.Var, t.Term]]:
    """All values of the action's enum and truth-valued parameters: the assigned state may depend on them."""
    chosen = [p for p in action.params if isinstance(p.sort, EnumSort | BoolSort) and not p.is_set]
    values: list[tuple[t.Value, ...]] = [
        p.sort.members if isinstance(p.sort, EnumSort) else (False, True) for p in chosen
    ]
    for combination in product(*values):
        yield {p.var: t.Lit(v, p.sort) for p, v in zip(chosen, combination, strict=True)}


def _writes(body: t.Term) -> Iterator[tuple[dict[t.Var, t.Term], t.Term]]:
    """The assigned values with the equations `generic argument = parameter` of the branch that assigns them."""
    match body:
        case t.Ite(cond, then, other):
            bound: dict[t.Var, t.Term] = {}
            for part in t.conjuncts(cond):
                match part:
                    case t.Eq(t.Var() as a, b) if a.name.startswith("@"):
                        bound[a] = b
                    case t.Eq(b, t.Var() as a) if a.name.startswith("@"):
                        bound[a] = b
                    case t.Eq(t.Var() as a, t.Lit() as b) | t.Eq(t.Lit() as b, t.Var() as a):
                        bound[a] = b
            if bound or cond == t.TRUE:
                yield bound, then
                yield from _writes(other)
            else:
                yield {}, body
        case t.Read():
            return
        case _:
            yield {}, body


def _fold(term: t.Term, var: str, place: tuple[t.Term, ...], value: Enum) -> t.Term:
    """Replace reads of the object's state by `value`; other reads stay open."""

    def leaf(node: t.Term) -> t.Term | None:
        if isinstance(node, t.Read) and node.var == var and node.args == place:
            return t.Lit(value, node.sort)
        return None

    return t.transform(term, leaf)


def _values(term: t.Term) -> Iterator[Enum]:
    match term:
        case t.Lit(Enum() as value):
            yield value
        case t.Ite(_, then, other):
            yield from _values(then)
            yield from _values(other)
        case t.Var(sort=EnumSort() as sort) | t.Read(sort=EnumSort() as sort):
            yield from sort.members
        case _:
            return
