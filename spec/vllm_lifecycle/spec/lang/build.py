"""Expressions and the symbolic state: how definitions are written.

An action is a Python function over a symbolic state `s`. `s.require(condition)` adds a guard; `s.status[r] = X` assigns
at a point; `s.table[r, :] = lambda b: ...` assigns a whole row. A read always gives the current value, so a helper that
runs later sees what an earlier one assigned; `s.old` reads the state before the action. Each variable is assigned at most
once per action (twice only at places that differ by an enum literal): the next state can then be read off one line.

`Expr` wraps a term and overloads operators. It has no truth value: `if s.status[r] == X` raises instead of being
silently true. Rejected: tracing plain `if` statements (needs source rewriting, and hides the case split from the reader).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.places import Schema, applied, are_apart, check_places, generic_places, key_of
from vllm_lifecycle.spec.lang.sorts import (
    BOOL,
    DefinitionError,
    EnumSort,
    IntSort,
    Sort,
    UninterpretedSort,
    compatible,
)


class Expr:
    """A term in an expression of a definition; operators build terms, and there is no truth value."""

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: t.Term) -> None:
        self.term = term

    def __bool__(self) -> bool:
        raise DefinitionError(
            "an expression has no truth value: write `a & b`, `a | b`, `~a`, `a >> b`, `when(...)`, `either(...)` or `ite(...)` "
            "instead of `and`, `or`, `not`, `if`"
        )

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        left, right = self.term, lift(other)
        if not compatible(t.sort_of(left), t.sort_of(right)):
            raise DefinitionError(
                f"cannot compare {t.sort_of(left)} with {t.sort_of(right)}: compare terms of one sort"
            )
        return Expr(t.equal(left, right))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return ~(self == other)

    def __and__(self, other: object) -> Expr:
        return Expr(t.conj(truth(self), truth(other)))

    def __or__(self, other: object) -> Expr:
        return Expr(t.disj(truth(self), truth(other)))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Expr:
        return Expr(t.neg(truth(self)))

    def __rshift__(self, other: object) -> Expr:
        return Expr(t.implies(truth(self), truth(other)))

    def __add__(self, other: object) -> Expr:
        return Expr(t.add(_int(self), _int(other)))

    __radd__ = __add__

    def __sub__(self, other: object) -> Expr:
        return Expr(t.sub(_int(self), _int(other)))

    def __rsub__(self, other: object) -> Expr:
        return Expr(t.sub(_int(other), _int(self)))

    def __le__(self, other: object) -> Expr:
        return Expr(t.less_equal(_int(self), _int(other)))

    def __ge__(self, other: object) -> Expr:
        return Expr(t.less_equal(_int(other), _int(self)))

    def __lt__(self, other: object) -> Expr:
        return ~(self >= other)

    def __gt__(self, other: object) -> Expr:
        return ~(self <= other)

    def is_in(self, *members: Enum) -> Expr:
        """Whether an enum-valued expression is one of the members."""
        return either(*(self == m for m in members))


class Individual(Expr):
    """Base of uninterpreted sorts: `class Request(Individual): ...` declares the sort Request."""

    __slots__ = ()

    @classmethod
    def sort(cls) -> UninterpretedSort:
        """The sort that this class declares."""
        return UninterpretedSort(cls.__name__)


Element = TypeVar("Element", bound=Expr)


class SetOf(Generic[Element]):
    """A set-valued parameter of an action: `blocks[b]` says that `b` is in it."""

    def __init__(self, name: str, sort: Sort) -> None:
        self.name = name
        self.element_sort = sort

    def __repr__(self) -> str:
        return f"the set {self.name}"

    __hash__ = None  # type: ignore[assignment]

    def _misused(self, *_: object) -> bool:
        raise DefinitionError(
            f"{self.name} is a set: write {self.name}[x] for membership, and forall or exists to compare sets"
        )

    __bool__ = __eq__ = __contains__ = _misused

    def __getitem__(self, element: object) -> Expr:
        term = lift(element)
        if not compatible(t.sort_of(term), self.element_sort):
            raise DefinitionError(f"{self.name} is a set of {self.element_sort}, not of {t.sort_of(term)}")
        return Expr(t.InSet(self.name, term))


def lift(value: object) -> t.Term:
    """The term of an expression, a Python truth value, integer or enum member."""
    match value:
        case Expr():
            return value.term
        case bool():
            return t.boolean(value)
        case int():
            return t.integer(value)
        case Enum():
            return t.member(value)
        case _:
            raise DefinitionError(
                f"{value!r} is not an expression: use a parameter, a state read, a bool, an int or an enum member"
            )


def truth(value: object) -> t.Term:
    """The term of a truth value; DefinitionError for anything else."""
    term = lift(value)
    if t.sort_of(term) != BOOL:
        raise DefinitionError(
            f"a truth value is needed here, but this is of sort {t.sort_of(term)}: compare it with something"
        )
    return term


def _int(value: object) -> t.Term:
    term = lift(value)
    if not isinstance(t.sort_of(term), IntSort):
        raise DefinitionError(
            f"a number is needed here, but this is of sort {t.sort_of(term)}: count it with one_if, or compare with =="
        )
    return term


def every(*parts: object) -> Expr:
    """Conjunction of any number of truth values."""
    return Expr(t.conj(*(truth(p) for p in parts)))


def either(*parts: object) -> Expr:
    """Disjunction of any number of truth values."""
    return Expr(t.disj(*(truth(p) for p in parts)))


def ite(cond: object, then: object, other: object) -> Expr:
    """`then` where `cond` holds, `other` elsewhere."""
    a, b = lift(then), lift(other)
    if not compatible(t.sort_of(a), t.sort_of(b)):
        raise DefinitionError(
            f"the branches of ite are {t.sort_of(a)} and {t.sort_of(b)}: give both the same sort"
        )
    return Expr(t.ite(truth(cond), a, b))


def one_if(cond: object) -> Expr:
    """1 where `cond` holds, else 0."""
    return ite(cond, 1, 0)


SortLike = type[Expr] | type[Enum]


def sort_of_annotation(annotation: Any) -> Sort:
    """The sort named by a class: an `Individual` subclass, an `Enum` or `bool`."""
    if isinstance(annotation, type):
        if issubclass(annotation, Individual):
            return annotation.sort()
        if issubclass(annotation, Enum):
            return EnumSort(annotation)
        if annotation is bool:
            return BOOL
    raise DefinitionError(
        f"{annotation!r} is not a sort: annotate with an Individual subclass, an Enum, bool, SetOf[...] "
        "or Annotated[int, IntSort(low, high)]"
    )


def variable(name: str, annotation: Any) -> Expr:
    """An expression for the variable `name`, of the class that its sort declares."""
    var = t.Var(name, sort_of_annotation(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Individual):
        return annotation(var)
    return Expr(var)


class _Quantifier:
    """`forall(Block, lambda b: ...)`; one sort per parameter of the function."""

    def __init__(self, kind: type[t.ForAll] | type[t.Exists]) -> None:
        self.kind = kind

    def __call__(self, *arguments: Any) -> Expr:
        *sorts, body = arguments
        code = getattr(body, "__code__", None)
        names = code.co_varnames[: code.co_argcount - len(body.__defaults__ or ())] if code else ()
        if not sorts or len(names) != len(sorts):
            raise DefinitionError(
                "write forall(Sort, ..., lambda x, ...: condition): sorts first, then one function of as many parameters"
            )
        # Nested quantifiers may reuse a Python name: a fresh name per depth keeps the binders apart.
        depth = _Depth.value = _Depth.value + 1
        try:
            variables = [variable(f"{n}.{depth}", s) for n, s in zip(names, sorts, strict=True)]
            inner = truth(body(*variables))
        finally:
            _Depth.value = depth - 1
        return Expr(t.quantify(self.kind, tuple(v.term for v in variables), inner))  # type: ignore[misc]


class _Depth:
    value: ClassVar[int] = 0


forall = _Quantifier(t.ForAll)
exists = _Quantifier(t.Exists)


class Table:
    """A state variable with arguments: `s.table[r, b]` reads, `s.table[r, b] = x` and `s.table[r, :] = f` assign."""

    def __init__(self, name: str, state: State) -> None:
        self._name = name
        self._state = state

    def __repr__(self) -> str:
        return f"s.{self._name}"

    def __getitem__(self, key: object) -> Any:
        args = tuple(lift(k) for k in key_of(key))
        return self._state._read(self._name, args)

    def __setitem__(self, key: object, value: object) -> None:
        self._state._assign(self._name, key_of(key), value)

    __hash__ = None  # type: ignore[assignment]

    def _misused(self, *_: object) -> bool:
        raise DefinitionError(f"{self._name} takes arguments: write s.{self._name}[...]")

    __bool__ = __eq__ = __contains__ = _misused


class _NoOld:
    """Stands for the state before a step where there is no step."""

    def __getattr__(self, name: str) -> Any:
        raise DefinitionError(
            f"s.old.{name} needs a step: define the property with @spec.step, or read s.{name}"
        )


class State:
    """The symbolic state handed to a definition; see the module's head for the rules."""

    _fields: ClassVar[frozenset[str]] = frozenset(
        {"_schema", "_values", "_primed", "_writes", "_guards", "_writable", "_overriding", "old"}
    )
    old: Any

    def __init__(self, schema: Schema, *, writable: bool = False, primed: bool = False) -> None:
        self._schema = schema
        self._values: dict[str, t.Function] = {}
        self._primed = primed
        self._writes: dict[str, list[tuple[t.Term | None, ...]]] = {}
        self._guards: list[tuple[str, t.Term]] = []
        self._writable = writable
        self._overriding = False
        self.old = State(schema) if writable or primed else _NoOld()

    # reading

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        args, _ = self._schema.signature(name)
        return Table(name, self) if args else self._read(name, ())

    def _read(self, name: str, args: tuple[t.Term, ...]) -> Expr:
        sorts, sort = self._schema.signature(name)
        check_places(name, sorts, args)
        if name in self._values:
            return Expr(self._values[name](*args))
        return Expr(t.Read(name, args, sort, self._primed))

    # writing

    def __setattr__(self, name: str, value: object) -> None:
        if name in State._fields:
            object.__setattr__(self, name, value)
        else:
            self._assign(name, (), value)

    def require(self, condition: object, because: str = "") -> None:
        """Add a guard; all guards come before the first assignment. `because` names it in docs and mutants."""
        if not self._writable:
            raise DefinitionError("only an action has guards: in a property write when(antecedent).then(...)")
        if self._writes and not self._overriding:
            raise DefinitionError(
                "require() after an assignment would read the new state: put every require() first"
            )
        self._guards.append((because, truth(condition)))

    def _assign(self, name: str, key: tuple[object, ...], value: object) -> None:
        signature = self._schema.signature(name)
        sorts, sort = signature
        if not self._writable:
            raise DefinitionError(f"{name} cannot be assigned here: only an action changes the state")
        params = generic_places(signature)
        place = tuple(None if isinstance(k, slice) and k == slice(None) else lift(k) for k in key)
        check_places(name, sorts, place)
        if not self._overriding:
            for earlier in self._writes.get(name, []):
                if not are_apart(earlier, place):
                    raise DefinitionError(
                        f"{name} is assigned twice: write one assignment, `s.{name}[..., :] = lambda x: ...`, for all places"
                    )
        free = [p for p, term in zip(params, place, strict=True) if term is None]
        new = lift(applied(name, value, [_expr(p) for p in free]) if callable(value) else value)
        if not compatible(t.sort_of(new), sort):
            raise DefinitionError(f"{name} holds {sort}, not {t.sort_of(new)}")
        here = t.conj(*(t.equal(p, term) for p, term in zip(params, place, strict=True) if term is not None))
        before = self._read(name, params).term
        self._values[name] = t.Function(params, t.ite(here, new, before))
        self._writes.setdefault(name, []).append(place)

    def _override(self, change: Callable[[], None]) -> None:
        """Run assignments that may overwrite earlier ones: for mutants only."""
        self._overriding = True
        try:
            change()
        finally:
            self._overriding = False


def _expr(var: t.Var) -> Expr:
    if isinstance(var.sort, UninterpretedSort):
        for cls in _subclasses(Individual):
            if cls.__name__ == var.sort.name:
                return cls(var)
    return Expr(var)


def _subclasses(cls: type[Individual]) -> Iterator[type[Individual]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
