"""Random small well-formed specifications, written through the language as a person would write them.

A specification follows from its seed alone. It has up to two sorts, an enum, boolean, enum and integer variables of zero to two
arguments (one may be a ghost), actions with guards, point and bulk updates and all kinds of parameters, state and step
properties. Integers stay in their range by construction, unless asked otherwise. What the language rejects, and what hardly
moves, is drawn again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from tests.agreement.naive import search

from vllm_lifecycle.spec.lang.build import Expr, Individual, SetOf, State, either, every, exists, forall, ite
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort


class Thing(Individual):
    """A sort of the random specifications."""


class Place(Individual):
    """A sort of the random specifications."""


class Colour(Enum):
    """An enum of the random specifications."""

    RED = "RED"
    GREEN = "GREEN"
    BLUE = "BLUE"


LARGEST_STATE = 11
"""Most cells that a state may have."""
LEAST_STATES = 6
"""A specification that reaches fewer states is hardly worth a look."""


@dataclass(frozen=True)
class Example:
    """A machine and the domain to look at it in."""

    seed: int
    machine: Machine
    domain: Domain


@dataclass(frozen=True)
class _Var:
    name: str
    args: tuple[Any, ...]
    to: Any
    ghost: bool


Scope = dict[Any, list[Any]]
"""What may be used for an argument of a sort; the key "sets" holds set-valued parameters."""


class _Writer:
    """Draws one specification."""

    def __init__(self, rng: random.Random, wild: bool) -> None:
        self.rng = rng
        self.wild = wild
        self.spec = Spec("random")
        self.top = self.spec.const("top")
        self.sorts = [Thing, Place][: rng.randint(1, 2)]
        self.sizes = {s.__name__: rng.randint(1, 2 + (len(self.sorts) == 1)) for s in self.sorts}
        self.high = rng.randint(1, 2)
        self.vars: list[_Var] = []

    def draw(self) -> tuple[Machine, Domain]:
        self._declare(_Var("v0", (), self._value_sort(), False))
        for i in range(1, self.rng.randint(2, 4)):
            args = tuple(self._argument_sort() for _ in range(self.rng.choice((0, 1, 1, 1, 2))))
            self._declare(_Var(f"v{i}", args, self._value_sort(), i > 1 and self.rng.random() < 0.2))
        for i in range(self.rng.randint(2, 5)):
            self._try(lambda i=i: self._action(i))  # type: ignore[misc]
        for i in range(self.rng.randint(1, 3)):
            self._try(lambda i=i: self._property(i))  # type: ignore[misc]
        individuals = {
            name: tuple(f"{name[0].lower()}{i}" for i in range(n)) for name, n in self.sizes.items()
        }
        return self.spec.seal(), Domain(individuals, {"top": self.high})

    def _try(self, define: Callable[[], None], times: int = 20) -> None:
        for _ in range(times):
            try:
                define()
            except DefinitionError:
                continue
            return

    # vocabulary

    def _argument_sort(self) -> Any:
        return self.rng.choice((*self.sorts, *self.sorts, Colour))

    def _value_sort(self) -> Any:
        return self.rng.choice((bool, bool, Colour, IntSort(0, "top"), IntSort(0, 2)))

    def _declare(self, var: _Var) -> None:
        size = 1
        for arg in var.args:
            size *= self.sizes.get(arg.__name__, 3)
        if size > 6:
            var = _Var(var.name, var.args[:1], var.to, var.ghost)
        init: Any = (
            0
            if isinstance(var.to, IntSort)
            else self.rng.choice([False, True] if var.to is bool else list(Colour))
        )
        self.spec.var(
            var.name, *var.args, to=var.to, init=init, module=self.rng.choice("mn"), ghost=var.ghost
        )
        self.vars.append(var)

    # expressions

    def _args(self, var: _Var, scope: Scope) -> tuple[Any, ...] | None:
        found = []
        for sort in var.args:
            usable = [*scope.get(sort, ()), *(Colour if sort is Colour else ())]
            if not usable:
                return None
            found.append(self.rng.choice(usable))
        return tuple(found)

    def _read(self, s: State, kind: Callable[[Any], bool], scope: Scope, ghosts: bool) -> Any:
        """A read of some variable with such values, or None."""
        usable = [v for v in self.vars if kind(v.to) and (ghosts or not v.ghost)]
        self.rng.shuffle(usable)
        for var in usable:
            args = self._args(var, scope)
            if args is not None:
                return getattr(s, var.name)[args] if args else getattr(s, var.name)
        return None

    def _state(self, s: State) -> State:
        return s.old if isinstance(s.old, State) and self.rng.random() < 0.4 else s

    def truth(self, s: State, scope: Scope, depth: int, ghosts: bool = True) -> Expr:
        """A random condition."""

        def again(more: Scope = scope) -> Expr:
            return self.truth(s, more, depth - 1, ghosts)

        kind = self.rng.randrange(9) if depth > 0 else 0
        match kind:
            case 1:
                return ~again()
            case 2:
                return every(again(), again())
            case 3:
                return either(again(), again())
            case 4:
                return again() >> again()
            case 5 | 6:
                sort = self.rng.choice((*self.sorts, Colour))
                quantifier = forall if kind == 5 else exists
                return quantifier(sort, lambda x: again({**scope, sort: [*scope.get(sort, ()), x]}))
            case 7:
                return ite(again(), again(), again())
            case _:
                return self._atom(s, scope, ghosts)

    def _atom(self, s: State, scope: Scope, ghosts: bool) -> Expr:
        state = self._state(s)
        kinds = [
            self._bool_atom,
            self._bool_atom,
            self._enum_atom,
            self._int_atom,
            self._set_atom,
            self._same_atom,
        ]
        self.rng.shuffle(kinds)
        for kind in kinds:
            atom = kind(state, scope, ghosts)
            if atom is not None:
                return every(atom)
        return every(True)

    def _bool_atom(self, s: State, scope: Scope, ghosts: bool) -> Any:
        if scope.get(bool) and self.rng.random() < 0.3:
            return self.rng.choice(scope[bool])
        return self._read(s, lambda to: to is bool, scope, ghosts)

    def _enum_atom(self, s: State, scope: Scope, ghosts: bool) -> Any:
        left = self._read(s, lambda to: to is Colour, scope, ghosts)
        if left is None:
            return None
        right = self.rng.choice([*Colour, *scope.get(Colour, ())])
        other = self._read(s, lambda to: to is Colour, scope, ghosts)
        return left == (other if self.rng.random() < 0.2 else right)

    def _int_atom(self, s: State, scope: Scope, ghosts: bool) -> Any:
        left = self._read(s, lambda to: isinstance(to, IntSort), scope, ghosts)
        if left is None:
            return None
        right = self.rng.choice((0, 1, 1, 2, self.top, *scope.get(int, ())))
        if self.rng.random() < 0.3:
            right = self._read(s, lambda to: isinstance(to, IntSort), scope, ghosts) + self.rng.randint(0, 1)
        return left <= right if self.rng.random() < 0.5 else left == right

    def _set_atom(self, s: State, scope: Scope, ghosts: bool) -> Any:
        usable = [(c, x) for c, sort in scope.get("sets", ()) for x in scope.get(sort, ())]
        if not usable:
            return None
        chosen, element = self.rng.choice(usable)
        return chosen[element]

    def _same_atom(self, s: State, scope: Scope, ghosts: bool) -> Any:
        usable = [xs for sort, xs in scope.items() if sort in self.sorts and len(xs) > 1]
        if not usable:
            return None
        one, two = self.rng.sample(self.rng.choice(usable), 2)
        return one == two

    def _value(self, s: State, var: _Var, scope: Scope) -> Any:
        """A random value for a variable, in its range."""
        if var.to is bool:
            return self.rng.random() < 0.5 if self.rng.random() < 0.4 else self.truth(s, scope, 2, var.ghost)
        state = self._state(s)
        if var.to is Colour:
            one = self.rng.choice([*Colour, *scope.get(Colour, ())])
            two = self._read(state, lambda to: to is Colour, scope, var.ghost)
            if two is not None and self.rng.random() < 0.5:
                return ite(self.truth(s, scope, 1, var.ghost), one, two)
            return one
        # A number: its own old value moved by one within the range, or a small one.
        high = self.top if var.to.high == "top" else 2
        own = self._read(state, lambda to: to == var.to, scope, var.ghost)
        if own is None or self.rng.random() < 0.2:
            return ite(self.truth(s, scope, 1, var.ghost), 1, 0)
        if self.wild and self.rng.random() < 0.5:
            return own + 1 if self.rng.random() < 0.6 else own - 1
        if self.rng.random() < 0.6:
            return ite(own + 1 <= high, own + 1, own)
        return ite(self.truth(s, scope, 1, var.ghost) & (own >= 1), own - 1, own)

    # rows

    def _parameters(self, sets: bool) -> dict[str, Any]:
        params: dict[str, Any] = {f"p{i}": self.rng.choice(self.sorts) for i in range(self.rng.randint(0, 2))}
        if sets and self.rng.random() < 0.35:
            params["chosen"] = SetOf[self.rng.choice(self.sorts)]  # type: ignore[misc]
        if sets and self.rng.random() < 0.3:
            params["extra"] = self.rng.choice((bool, Colour, Annotated[int, IntSort(0, "top")]))
        return params

    def _scope(self, hints: dict[str, Any], arguments: dict[str, Any]) -> Scope:
        scope: Scope = {}
        for name, hint in hints.items():
            argument = arguments[name]
            if isinstance(argument, SetOf):
                scope.setdefault("sets", []).append((argument, hint.__args__[0]))
            else:
                scope.setdefault(int if hasattr(hint, "__metadata__") else hint, []).append(argument)
        return scope

    def _action(self, number: int) -> None:
        hints = self._parameters(sets=True)

        def body(s: State, **arguments: Any) -> None:
            scope = self._scope(hints, arguments)
            for _ in range(self.rng.randint(0, 2)):
                s.require(
                    self.truth(s, scope, self.rng.choice((0, 1, 1, 2)), ghosts=False),
                    self.rng.choice(("", "a reason")),
                )
            for var in self.rng.sample(self.vars, self.rng.randint(1, min(2, len(self.vars)))):
                self._assign(s, var, scope)

        fair = self.rng.random() < 0.3
        self.spec.action(by="nobody", feature="core", fair=fair)(_function(f"act{number}", hints, body))

    def _assign(self, s: State, var: _Var, scope: Scope) -> None:
        if not var.args:
            setattr(s, var.name, self._value(s, var, scope))
            return
        args = self._args(var, scope)
        key = [
            a if args and self.rng.random() < 0.7 else slice(None)
            for a in args or (slice(None),) * len(var.args)
        ]
        open_sorts = [sort for sort, k in zip(var.args, key, strict=True) if isinstance(k, slice)]

        def value(*xs: Any) -> Any:
            inner = {**scope}
            for sort, x in zip(open_sorts, xs, strict=True):
                inner[sort] = [*inner.get(sort, ()), x]
            return self._value(s, var, inner)

        getattr(s, var.name)[tuple(key)] = value if open_sorts else value()

    def _property(self, number: int) -> None:
        hints = self._parameters(sets=False)
        step = self.rng.random() < 0.3

        def body(s: State, **arguments: Any) -> Implication:
            scope = self._scope(hints, arguments)
            claim = self.truth(s, scope, 2)
            if step:
                return when(self.truth(s, scope, 1), self._change(s, scope)).then(claim)
            if self.rng.random() < 0.3:
                return always(claim)
            return when(self.truth(s, scope, 1)).then(claim)

        define = self.spec.step() if step else self.spec.safety()
        define(_function(f"claim{number}", hints, body))

    def _change(self, s: State, scope: Scope) -> Expr:
        """Something is not what it was before the step."""
        var = self.rng.choice([v for v in self.vars if self._args(v, scope) is not None])
        args = self._args(var, scope)
        old, new = getattr(s.old, var.name), getattr(s, var.name)
        return every(old[args] != new[args] if args else old != new)


def _function(name: str, hints: dict[str, Any], body: Callable[..., Any]) -> Callable[..., Any]:
    """A function `name(s, **parameters)` with these annotations, as a definition in a file has them."""
    names = ", ".join(("s", *hints))
    given = ", ".join(f"{n}={n}" for n in hints)
    space: dict[str, Any] = {"body": body}
    exec(f"def {name}({names}): return body(s, {given})", space)
    function: Callable[..., Any] = space[name]
    function.__annotations__ = dict(hints)
    return function


def example(seed: int, *, wild: bool = False) -> Example:
    """The specification of a seed; in a `wild` one integers may leave their range."""
    rng = random.Random(seed)
    while True:
        writer = _Writer(rng, wild)
        try:
            machine, domain = writer.draw()
        except DefinitionError:
            continue
        cells = sum(_size(v.args, domain) for v in machine.vars)
        few = LEAST_STATES - 1
        if (
            machine.properties
            and cells <= LARGEST_STATE
            and not search(machine, domain, max_states=few).complete
        ):
            return Example(seed, machine, domain)


def _size(args: tuple[Any, ...], domain: Domain) -> int:
    size = 1
    for sort in args:
        size *= len(domain.of(sort))
    return size
