"""Terms over finitely many named individuals, as quantifier-free SMT-LIB text.

Used where a state of a known size is wanted: counterexamples to induction and bounded model checking. Individuals are plain
values here, so quantifiers unfold, equalities between individuals fold, and a cell `table[r1, b2]` is one solver constant
`table@r1@b2`. What is known stays a Python value; what is not is a `Sym`, a piece of text. Arguments of a read that are not
known (an enum parameter) become a cascade of if-then-else over the values of their sort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, assert_never

from vllm_lifecycle.spec.check.induction.smtlib import literal, sort_name
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import Cell, Domain, assignments
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import EnumSort, Sort


class Sym(str):
    """A value that the solver has to find, as text."""

    __slots__ = ()


Ground = Any
"""A Python value, or a `Sym`."""


def printed(value: Ground) -> str:
    """A ground value as SMT-LIB text."""
    return value if type(value) is Sym else literal(value)


@dataclass(frozen=True)
class World:
    """What the free symbols of a term mean: cells before and after a step, sets and parameters by name."""

    domain: Domain
    before: Callable[[Cell], Ground]
    binding: Mapping[str, Ground]
    after: Callable[[Cell], Ground] | None = None

    def bind(self, binding: Mapping[str, Ground]) -> World:
        """The same world with further variables bound."""
        return replace(self, binding={**self.binding, **binding})


def ground(term: t.Term, world: World) -> Ground:
    """The meaning of a term: known, or text."""
    match term:
        case t.Lit(value):
            return value
        case t.Var(name):
            return world.binding[name]
        case t.Const(name):
            return world.domain.constants.get(name, Sym(f"c.{name}"))
        case t.Read():
            return _read(term, world)
        case t.InSet(name, element):
            return _member(name, ground(element, world), t.sort_of(element), world)
        case t.Not(arg):
            return negation(ground(arg, world))
        case t.And(args):
            return junction("and", (ground(a, world) for a in args))
        case t.Or(args):
            return junction("or", (ground(a, world) for a in args))
        case t.Eq(left, right):
            return equality(ground(left, world), ground(right, world))
        case t.Le(left, right):
            return _numeric("<=", ground(left, world), ground(right, world))
        case t.Add(left, right):
            return _numeric("+", ground(left, world), ground(right, world))
        case t.Sub(left, right):
            return _numeric("-", ground(left, world), ground(right, world))
        case t.Ite(cond, then, other):
            return _choice(ground(cond, world), lambda: ground(then, world), lambda: ground(other, world))
        case t.ForAll(variables, body):
            return junction(
                "and", (ground(body, world.bind(b)) for b in assignments(variables, world.domain))
            )
        case t.Exists(variables, body):
            return junction("or", (ground(body, world.bind(b)) for b in assignments(variables, world.domain)))
        case _:
            assert_never(term)


def negation(value: Ground) -> Ground:
    """Not, folded."""
    return Sym(f"(not {value})") if type(value) is Sym else not value


def junction(kind: str, values: Any) -> Ground:
    """And / or, folded; stops at the first value that decides."""
    unit = kind == "and"
    kept: dict[str, None] = {}
    for value in values:
        if type(value) is Sym:
            kept[value] = None
        elif value is not unit:
            return not unit
    if not kept:
        return unit
    return Sym(next(iter(kept))) if len(kept) == 1 else Sym(f"({kind} {' '.join(kept)})")


def equality(left: Ground, right: Ground) -> Ground:
    """Equality, folded."""
    if type(left) is not Sym and type(right) is not Sym:
        return left == right
    if type(left) is Sym and type(right) is Sym:
        return True if left == right else Sym(f"(= {left} {right})")
    unknown, known = (left, right) if type(left) is Sym else (right, left)
    if isinstance(known, bool):
        return unknown if known else negation(unknown)
    return Sym(f"(= {unknown} {literal(known)})")


def _numeric(operator: str, left: Ground, right: Ground) -> Ground:
    if type(left) is Sym or type(right) is Sym:
        return Sym(f"({operator} {printed(left)} {printed(right)})")
    if operator == "<=":
        return left <= right
    return left + right if operator == "+" else left - right


def _choice(cond: Ground, then: Callable[[], Ground], other: Callable[[], Ground]) -> Ground:
    if type(cond) is not Sym:
        return then() if cond else other()
    left, right = then(), other()
    if left is right or (type(left) is type(right) and left == right):
        return left
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool):
            return junction("or", (cond, right)) if left else junction("and", (negation(cond), right))
        return junction("or", (negation(cond), left)) if right else junction("and", (cond, left))
    return Sym(f"(ite {cond} {printed(left)} {printed(right)})")


def _read(term: t.Read, world: World) -> Ground:
    source = world.after if term.primed else world.before
    assert source is not None, f"{term.var} is read in the state after a step, but there is none"
    return _at(term, tuple(ground(a, world) for a in term.args), source, world.domain)


def _at(term: t.Read, args: tuple[Ground, ...], source: Callable[[Cell], Ground], domain: Domain) -> Ground:
    for place, arg in enumerate(args):
        if type(arg) is Sym:
            values = domain.of(t.sort_of(term.args[place]))
            at = [_at(term, (*args[:place], v, *args[place + 1 :]), source, domain) for v in values]
            return _cascade(arg, values, at)
    return source((term.var, args))


def _member(name: str, element: Ground, sort: Sort, world: World) -> Ground:
    members: Mapping[Any, Ground] = world.binding[name]
    if type(element) is not Sym:
        return members[element]
    values = world.domain.of(sort)
    return _cascade(element, values, [members[v] for v in values])


def _cascade(arg: Sym, values: tuple[Any, ...], results: list[Ground]) -> Ground:
    result = results[-1]
    for value, this in zip(values[-2::-1], results[-2::-1], strict=True):
        result = _choice(equality(arg, value), lambda this=this: this, lambda result=result: result)  # type: ignore[misc]
    return result


def cell_symbol(cell: Cell, time: str = "") -> Sym:
    """The solver constant of a cell, at one time of a run."""
    name, args = cell
    return Sym("@".join((f"{name}{time}", *(a.name if isinstance(a, Enum) else str(a) for a in args))))


def enum_declarations(machine: Machine) -> str:
    """The enum sorts whose members can be values (cells and parameters)."""
    sorts: dict[EnumSort, None] = {}
    for sort in (*(v.sort for v in machine.vars), *(s for v in machine.vars for s in v.args)):
        if isinstance(sort, EnumSort):
            sorts[sort] = None
    for params in (*(a.params for a in machine.actions), *(p.params for p in machine.properties)):
        for param in params:
            if isinstance(param.sort, EnumSort):
                sorts[param.sort] = None
    lines = []
    for enum in sorts:
        members = " ".join(f"({literal(m)})" for m in enum.members)
        lines.append(f"(declare-datatypes (({sort_name(enum)} 0)) (({members})))")
    return "\n".join(lines)
