"""Terms: one small frozen tree that every engine gives its own meaning.

Rules. A term is a value: `==` compares structure and `hash` agrees with it. Smart constructors (`conj`, `disj`, `neg`,
`equal`, `ite`, ...) fold constants and flatten, so that equal meanings written by different helpers mostly become equal
trees. A state read is `Read(variable, arguments, primed)`; an unprimed read speaks of the state before a step, a primed
one of the state after it. Substitution is capture-avoiding. Rejected: using solver objects as the tree (their `==` is
truthy by accident, their names are global, and printing docs would need a solver).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from vllm_lifecycle.spec.lang.sorts import BOOL, EnumSort, IntSort, Sort

Value = bool | int | Enum


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal of sort Bool, an enum sort or an integer sort."""

    value: Value
    sort: Sort


@dataclass(frozen=True, slots=True)
class Var:
    """A parameter of an action or property, or a variable bound by a quantifier."""

    name: str
    sort: Sort


@dataclass(frozen=True, slots=True)
class Const:
    """A rigid integer constant of the specification, fixed by a scope and left symbolic in a proof."""

    name: str
    sort: IntSort


@dataclass(frozen=True, slots=True)
class Read:
    """The value of a state variable at some arguments, before (`primed` false) or after a step."""

    var: str
    args: tuple[Term, ...]
    sort: Sort
    primed: bool = False


@dataclass(frozen=True, slots=True)
class InSet:
    """Membership of `element` in the set-valued parameter `set_name`."""

    set_name: str
    element: Term


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    arg: Term


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two or more terms."""

    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two or more terms."""

    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Eq:
    """Equality of two terms of compatible sorts (for booleans: equivalence)."""

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Le:
    """Integer comparison `left <= right`."""

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Add:
    """Integer sum."""

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Sub:
    """Integer difference."""

    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Ite:
    """If-then-else of any sort."""

    cond: Term
    then: Term
    other: Term


@dataclass(frozen=True, slots=True)
class ForAll:
    """Universal quantification over uninterpreted or enum sorts."""

    vars: tuple[Var, ...]
    body: Term


@dataclass(frozen=True, slots=True)
class Exists:
    """Existential quantification over uninterpreted or enum sorts."""

    vars: tuple[Var, ...]
    body: Term


Term = Lit | Var | Const | Read | InSet | Not | And | Or | Eq | Le | Add | Sub | Ite | ForAll | Exists

TRUE = Lit(True, BOOL)
FALSE = Lit(False, BOOL)


def sort_of(term: Term) -> Sort:
    """The sort of a term."""
    match term:
        case Lit(sort=sort) | Var(sort=sort) | Const(sort=sort) | Read(sort=sort):
            return sort
        case InSet() | Not() | And() | Or() | Eq() | Le() | ForAll() | Exists():
            return BOOL
        case Add(left, _) | Sub(left, _):
            return sort_of(left)
        case Ite(_, then, _):
            return sort_of(then)
        case _:
            assert_never(term)


def boolean(value: bool) -> Lit:
    """The literal of a Python truth value."""
    return TRUE if value else FALSE


def integer(value: int) -> Lit:
    """The literal of a Python integer."""
    return Lit(value, IntSort(value, value))


def member(value: Enum) -> Lit:
    """The literal of an enum member."""
    return Lit(value, EnumSort(type(value)))


def neg(arg: Term) -> Term:
    """Negation; pushes through literals and double negation."""
    match arg:
        case Lit(value):
            return boolean(not value)
        case Not(inner):
            return inner
        case _:
            return Not(arg)


def _junction(args: Iterable[Term], kind: type[And] | type[Or], unit: Lit, zero: Lit) -> Term:
    flat: dict[Term, None] = {}
    for arg in args:
        for part in arg.args if isinstance(arg, kind) else (arg,):
            if part == zero or neg(part) in flat:
                return zero
            if part != unit:
                flat[part] = None
    if not flat:
        return unit
    return next(iter(flat)) if len(flat) == 1 else kind(tuple(flat))


def conj(*args: Term) -> Term:
    """Conjunction: flattened, without duplicates, false when contradictory on its face."""
    return _junction(args, And, TRUE, FALSE)


def disj(*args: Term) -> Term:
    """Disjunction: flattened, without duplicates, true when exhaustive on its face."""
    return _junction(args, Or, FALSE, TRUE)


def implies(left: Term, right: Term) -> Term:
    """Implication."""
    return disj(neg(left), right)


def equal(left: Term, right: Term) -> Term:
    """Equality; folds literals and distributes over if-then-else with literal branches."""
    if left == right:
        return TRUE
    if isinstance(left, Lit) and isinstance(right, Lit):
        return boolean(left.value == right.value)
    if sort_of(left) == BOOL:
        for one, two in ((left, right), (right, left)):
            if isinstance(one, Lit):
                return two if one.value else neg(two)
    for one, two in ((left, right), (right, left)):
        if isinstance(one, Ite) and isinstance(two, Lit):
            return ite(one.cond, equal(one.then, two), equal(one.other, two))
    return Eq(left, right)


def less_equal(left: Term, right: Term) -> Term:
    """Integer comparison, folded on literals."""
    if isinstance(left, Lit) and isinstance(right, Lit):
        return boolean(left.value <= right.value)  # type: ignore[operator]
    return TRUE if left == right else Le(left, right)


def add(left: Term, right: Term) -> Term:
    """Integer sum, folded on literals."""
    match left, right:
        case Lit(int(a)), Lit(int(b)):
            return integer(a + b)
        case (other, Lit(0)) | (Lit(0), other):
            return other
        case _:
            return Add(left, right)


def sub(left: Term, right: Term) -> Term:
    """Integer difference, folded on literals."""
    match left, right:
        case Lit(int(a)), Lit(int(b)):
            return integer(a - b)
        case other, Lit(0):
            return other
        case _:
            return Sub(left, right)


def ite(cond: Term, then: Term, other: Term) -> Term:
    """If-then-else; of boolean sort it becomes plain connectives when a branch is a literal."""
    if cond == TRUE or then == other:
        return then
    if cond == FALSE:
        return other
    if sort_of(then) == BOOL:
        if isinstance(then, Lit):
            return disj(cond, other) if then.value else conj(neg(cond), other)
        if isinstance(other, Lit):
            return disj(neg(cond), then) if other.value else conj(cond, then)
    return Ite(cond, then, other)


def quantify(kind: type[ForAll] | type[Exists], variables: tuple[Var, ...], body: Term) -> Term:
    """Quantification; variables that the body does not mention are dropped (sorts are never empty)."""
    free = free_vars(body)
    kept = tuple(v for v in variables if v in free)
    if not kept:
        return body
    return kind(kept, body)


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms."""
    match term:
        case Lit() | Var() | Const():
            return ()
        case Read(args=args) | And(args) | Or(args):
            return args
        case InSet(_, element):
            return (element,)
        case Not(arg):
            return (arg,)
        case Eq(a, b) | Le(a, b) | Add(a, b) | Sub(a, b):
            return (a, b)
        case Ite(c, a, b):
            return (c, a, b)
        case ForAll(_, body) | Exists(_, body):
            return (body,)
        case _:
            assert_never(term)


def walk(term: Term) -> Iterator[Term]:
    """The term and all its subterms, outermost first."""
    yield term
    for child in children(term):
        yield from walk(child)


def free_vars(term: Term) -> frozenset[Var]:
    """Variables not bound inside the term."""
    match term:
        case Var():
            return frozenset((term,))
        case ForAll(variables, body) | Exists(variables, body):
            names = {v.name for v in variables}
            return frozenset(v for v in free_vars(body) if v.name not in names)
        case _:
            return frozenset().union(*(free_vars(c) for c in children(term)))


def reads(term: Term) -> frozenset[str]:
    """Names of the state variables that the term reads."""
    return frozenset(t.var for t in walk(term) if isinstance(t, Read))


_SMART: dict[type, Callable[..., Term]] = {
    Not: neg, And: conj, Or: disj, Eq: equal, Le: less_equal, Add: add, Sub: sub, Ite: ite,
}  # fmt: skip


def rebuild(term: Term, parts: tuple[Term, ...]) -> Term:
    """The same node over other direct subterms, through the smart constructors."""
    match term:
        case Lit() | Var() | Const():
            return term
        case Read(var, _, sort, primed):
            return Read(var, parts, sort, primed)
        case InSet(name, _):
            return InSet(name, parts[0])
        case Not() | And() | Or() | Eq() | Le() | Add() | Sub() | Ite():
            return _SMART[type(term)](*parts)
        case ForAll(variables, _) | Exists(variables, _):
            return quantify(type(term), variables, parts[0])
        case _:
            assert_never(term)


def substitute(term: Term, mapping: Mapping[Var, Term]) -> Term:
    """Replace free variables, renaming bound ones that would capture."""
    if not mapping:
        return term
    if isinstance(term, Var):
        return mapping.get(term, term)
    if isinstance(term, ForAll | Exists):
        inner = {v: mapping[v] for v in free_vars(term) if v in mapping}
        if not inner:
            return term
        # Names decide what is captured, not sorts: an evaluator binds by name.
        taken = {v.name for t in inner.values() for v in free_vars(t)}
        names = taken | {v.name for v in free_vars(term.body)}
        fresh: list[Var] = []
        for v in term.vars:
            name = v.name
            if name in taken:
                while name in names:
                    name += "_"
                names.add(name)
                inner[v] = Var(name, v.sort)
            fresh.append(Var(name, v.sort))
        return quantify(type(term), tuple(fresh), substitute(term.body, inner))
    return rebuild(term, tuple(substitute(c, mapping) for c in children(term)))


def transform(term: Term, leaf: Callable[[Term], Term | None]) -> Term:
    """Rebuild bottom-up; `leaf` may answer a replacement for a node whose children are done already, or None."""
    built = rebuild(term, tuple(transform(c, leaf) for c in children(term)))
    # What surfaces from a folded node was offered before: offered again, a replacement would be replaced.
    replaced = leaf(built) if type(built) is type(term) else None
    return built if replaced is None else replaced


@dataclass(frozen=True, slots=True)
class Function:
    """A symbolic function `params -> body`: the value of a state variable in the midst of an action."""

    params: tuple[Var, ...]
    body: Term

    def __call__(self, *args: Term) -> Term:
        """Apply to argument terms."""
        return substitute(self.body, dict(zip(self.params, args, strict=True)))


def conjuncts(term: Term) -> tuple[Term, ...]:
    """The top-level conjuncts."""
    return term.args if isinstance(term, And) else (() if term == TRUE else (term,))
