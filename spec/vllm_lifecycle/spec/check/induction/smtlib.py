"""Terms as SMT-LIB 2.6 text: the only way in which this package speaks to a solver.

Rules. Every name carries its kind as a prefix, so that no two things of a specification can meet under one name: sorts
`S.Request`, enum sorts `E.Status` with members `Status.RUNNING`, state variables `s.table` (their primed reads `t.table`),
sets `set.hits`, constants `c.K`, parameters and bound variables `p.r`. Enum sorts are algebraic datatypes, which have exactly
their members as values. A number stands for itself; the range of an integer sort is a separate claim or hypothesis,
except that a variable bound by a quantifier ranges over its sort. Rejected: building solver objects node by node (some fifty
times slower than handing over text, and a second translation for the export and for a second solver).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Machine, Param
from vllm_lifecycle.spec.lang.sorts import BoolSort, EnumSort, IntSort, Sort, UninterpretedSort


def sort_name(sort: Sort) -> str:
    """The SMT-LIB name of a sort."""
    match sort:
        case BoolSort():
            return "Bool"
        case IntSort():
            return "Int"
        case EnumSort(cls):
            return f"E.{cls.__name__}"
        case UninterpretedSort(name):
            return f"S.{name}"
        case _:
            assert_never(sort)


def literal(value: t.Value) -> str:
    """A truth value, number or enum member."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"(- {-value})"
    return f"{type(value).__name__}.{value.name}"


def text(term: t.Term) -> str:
    """A term as an SMT-LIB expression."""
    match term:
        case t.Lit(value):
            return literal(value)
        case t.Var(name):
            return f"p.{name}"
        case t.Const(name):
            return f"c.{name}"
        case t.Read(var, args, _, primed):
            symbol = f"{'t' if primed else 's'}.{var}"
            return f"({symbol} {_all(args)})" if args else symbol
        case t.InSet(name, element):
            return f"(set.{name} {text(element)})"
        case t.Not(arg):
            return f"(not {text(arg)})"
        case t.And(args):
            return f"(and {_all(args)})"
        case t.Or(args):
            return f"(or {_all(args)})"
        case t.Eq(left, right):
            return f"(= {text(left)} {text(right)})"
        case t.Le(left, right):
            return f"(<= {text(left)} {text(right)})"
        case t.Add(left, right):
            return f"(+ {text(left)} {text(right)})"
        case t.Sub(left, right):
            return f"(- {text(left)} {text(right)})"
        case t.Ite(cond, then, other):
            return f"(ite {text(cond)} {text(then)} {text(other)})"
        case t.ForAll(variables, body):
            inner = t.implies(t.conj(*in_range(variables)), body)
            return f"(forall ({_binders(variables)}) {text(inner)})"
        case t.Exists(variables, body):
            inner = t.conj(*in_range(variables), body)
            return f"(exists ({_binders(variables)}) {text(inner)})"
        case _:
            assert_never(term)


def _all(terms: Iterable[t.Term]) -> str:
    return " ".join(map(text, terms))


def _binders(variables: Iterable[t.Var]) -> str:
    return " ".join(f"(p.{v.name} {sort_name(v.sort)})" for v in variables)


def high_of(sort: IntSort) -> t.Term:
    """The upper end of an integer sort: a literal or a constant."""
    return t.Const(sort.high, IntSort(1, sort.high)) if isinstance(sort.high, str) else t.integer(sort.high)


def within(term: t.Term, sort: IntSort) -> t.Term:
    """That a number lies in the range of an integer sort."""
    return t.conj(t.less_equal(t.integer(sort.low), term), t.less_equal(term, high_of(sort)))


def in_range(variables: Iterable[t.Var]) -> tuple[t.Term, ...]:
    """For the integer variables among some: that each lies in its sort."""
    return tuple(within(v, v.sort) for v in variables if isinstance(v.sort, IntSort))


def declarations(machine: Machine) -> str:
    """Sorts, state variables and constants (with their lower bounds) of a machine."""
    enums: dict[EnumSort, None] = {}
    for sort in (
        *(s for v in machine.vars for s in (*v.args, v.sort)),
        *(p.sort for a in machine.actions for p in a.params),
        *(p.sort for q in machine.properties for p in q.params),
        *(v.sort for q in machine.properties for v in _quantified(q.body)),
        *(
            v.sort
            for a in machine.actions
            for f in (a.guard, *(f.body for _, f in a.updates))
            for v in _quantified(f)
        ),
    ):
        if isinstance(sort, EnumSort):
            enums[sort] = None
    lines = [f"(declare-sort {sort_name(s)} 0)" for s in machine.sorts]
    for enum in enums:
        members = " ".join(f"({literal(m)})" for m in enum.members)
        lines.append(f"(declare-datatypes (({sort_name(enum)} 0)) (({members})))")
    for var in machine.vars:
        lines.append(
            f"(declare-fun s.{var.name} ({' '.join(map(sort_name, var.args))}) {sort_name(var.sort)})"
        )
    for const in machine.consts:
        lines.append(f"(declare-const c.{const.name} Int)")
        lines.append(f"(assert (<= {literal(const.sort.low)} c.{const.name}))")
    return "\n".join(lines) + "\n"


def _quantified(term: t.Term) -> Iterable[t.Var]:
    return (v for node in t.walk(term) if isinstance(node, t.ForAll | t.Exists) for v in node.vars)


def parameters(params: Iterable[Param]) -> str:
    """Declarations of parameters as constants (sets as predicates), integers within their range."""
    lines: list[str] = []
    for param in params:
        if param.is_set:
            lines.append(f"(declare-fun set.{param.name} ({sort_name(param.sort)}) Bool)")
        else:
            lines.append(f"(declare-const p.{param.name} {sort_name(param.sort)})")
            lines += [f"(assert {text(claim)})" for claim in in_range((param.var,))]
    return "\n".join(lines) + "\n"


def question(params: Iterable[Param], asserted: Iterable[t.Term]) -> str:
    """Parameters and what is asserted of them."""
    return parameters(params) + "\n".join(f"(assert {text(term)})" for term in asserted)
