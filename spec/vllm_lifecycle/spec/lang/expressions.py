"""Terms as Python expressions: the one walk over the term tree that all generated code is made of.

What a value, a constant, an individual and a cell are called depends on how states are kept; those hooks are the writer's (packed
states in `codegen`, sparse ones in `sparse`). Rejected: a walk per kind of state (the cases were the same, and one forgot one).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import assert_never

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.sorts import Sort

Names = Mapping[str, str]
"""The Python name of each variable of a term."""


class Expressions(ABC):
    """Writes terms as Python expressions."""

    @abstractmethod
    def literal(self, value: object, sort: Sort) -> str:
        """A value."""

    @abstractmethod
    def constant(self, name: str) -> str:
        """A rigid constant."""

    @abstractmethod
    def members(self, sort: Sort) -> str:
        """What a parameter or a bound variable of the sort ranges over."""

    @abstractmethod
    def read(self, read: t.Read, names: Names) -> str:
        """The value of a cell."""

    @abstractmethod
    def in_set(self, chosen: str, element: str) -> str:
        """Whether an element is in a set-valued parameter."""

    @abstractmethod
    def bound_name(self, var: t.Var) -> str:
        """A Python name for a variable that a quantifier binds."""

    def expr(self, term: t.Term, names: Names) -> str:
        """A term as a Python expression, in parentheses where needed."""
        match term:
            case t.Lit(value, sort):
                return self.literal(value, sort)
            case t.Var(name):
                return names[name]
            case t.Const(name):
                return self.constant(name)
            case t.Read():
                return self.read(term, names)
            case t.InSet(name, element):
                return self.in_set(names[name], self.expr(element, names))
            case t.Not(arg):
                return f"(not {self.expr(arg, names)})"
            case t.And(args):
                return f"({' and '.join(self.expr(a, names) for a in args)})"
            case t.Or(args):
                return f"({' or '.join(self.expr(a, names) for a in args)})"
            case t.Eq(left, right):
                return f"({self.expr(left, names)} == {self.expr(right, names)})"
            case t.Le(left, right):
                return f"({self.expr(left, names)} <= {self.expr(right, names)})"
            case t.Add(left, right):
                return f"({self.expr(left, names)} + {self.expr(right, names)})"
            case t.Sub(left, right):
                return f"({self.expr(left, names)} - {self.expr(right, names)})"
            case t.Ite(cond, then, other):
                return (
                    f"({self.expr(then, names)} if {self.expr(cond, names)} else {self.expr(other, names)})"
                )
            case t.ForAll(variables, body):
                return self._quantified("all", variables, body, names)
            case t.Exists(variables, body):
                return self._quantified("any", variables, body, names)
            case _:
                assert_never(term)

    def _quantified(self, word: str, variables: tuple[t.Var, ...], body: t.Term, names: Names) -> str:
        local = {**names, **{v.name: self.bound_name(v) for v in variables}}
        loops = " ".join(f"for {local[v.name]} in {self.members(v.sort)}" for v in variables)
        return f"{word}({self.expr(body, local)} {loops})"
