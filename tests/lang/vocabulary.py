"""Random terms over a small vocabulary, built node by node (not by the smart constructors), and random states for them.

Bound variables take their names from the same few as parameters, so that shadowing and capture happen all the time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Any

from hypothesis import strategies as st

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import Cell, Domain
from vllm_lifecycle.spec.lang.sorts import BOOL, EnumSort, IntSort, Sort, UninterpretedSort


class Colour(Enum):
    """An enum."""

    RED = "RED"
    BLUE = "BLUE"


THING, PLACE = UninterpretedSort("Thing"), UninterpretedSort("Place")
COLOUR, SMALL = EnumSort(Colour), IntSort(0, 2)
TOP = t.Const("top", IntSort(1, "top"))

VARS: dict[str, tuple[tuple[Sort, ...], Sort]] = {
    "on": ((), BOOL),
    "free": ((THING,), BOOL),
    "table": ((THING, PLACE), BOOL),
    "hue": ((THING,), COLOUR),
    "tint": ((), COLOUR),
    "level": ((PLACE,), SMALL),
    "by": ((COLOUR,), BOOL),
}
"""State variables with argument sorts and value sort."""

PARAMS: dict[str, Sort] = {"x": THING, "y": THING, "z": PLACE, "c": COLOUR, "n": SMALL, "f": BOOL}
"""Parameters; binders use the names x, y and z too, for any sort."""

DOMAIN = Domain({"Thing": ("t0", "t1", "t2"), "Place": ("p0", "p1")}, {"top": 2})

Scope = Mapping[str, Sort]
State = dict[Cell, Any]
Binding = dict[str, Any]
any_sort: st.SearchStrategy[Sort] = st.sampled_from((BOOL, COLOUR, SMALL))


def terms(sort: Sort, scope: Scope, depth: int = 3, primed: bool = False) -> st.SearchStrategy[t.Term]:
    """Terms of a sort over the names in scope; each follows from a seed, since Hypothesis itself draws them too plain."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: _Drawing(random.Random(seed), primed).term(sort, scope, depth)
    )


def claims(scope: Scope, depth: int = 3) -> st.SearchStrategy[t.Term]:
    """Quantified conditions over the names in scope."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: _Drawing(random.Random(seed), False).claim(scope, depth)
    )


def worlds(count: int = 6) -> st.SearchStrategy[list[tuple[State, Binding]]]:
    """Some states, reachable or not, each with values for the parameters and the set."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: [_world(random.Random(f"{seed} {i}")) for i in range(count)]
    )


def _world(rng: random.Random) -> tuple[State, Binding]:
    state = {cell: rng.choice(DOMAIN.of(sort)) for cell, sort in cells()}
    binding = {name: rng.choice(DOMAIN.of(sort)) for name, sort in PARAMS.items()}
    binding["chosen"] = frozenset(v for v in DOMAIN.of(THING) if rng.random() < 0.5)
    return state, binding


class _Drawing:
    """Draws one term."""

    def __init__(self, rng: random.Random, primed: bool) -> None:
        self.rng = rng
        self.primed = primed

    def leaf(self, sort: Sort, scope: Scope) -> t.Term:
        """A name in scope, a literal, a constant."""
        found: list[t.Term] = [t.Var(name, sort) for name, s in scope.items() if s == sort]
        if not isinstance(sort, UninterpretedSort) and (not found or self.rng.random() < 0.4):
            found = [t.Lit(value, sort) for value in DOMAIN.of(sort)]
            if isinstance(sort, IntSort):
                found.append(TOP)
        return self.rng.choice(found)

    def term(self, sort: Sort, scope: Scope, depth: int) -> t.Term:
        """A term of a sort."""

        def inner(of: Sort, names: Scope = scope) -> t.Term:
            return self.term(of, names, depth - 1)

        if isinstance(sort, UninterpretedSort) or depth <= 0:
            return self.leaf(sort, scope)
        kinds = ["read", "read", "read", "ite", "leaf"]
        if sort == BOOL:
            kinds += ["not", "not", "and", "or", "eq", "le", "in", "forall", "forall", "exists", "exists"]
        elif isinstance(sort, IntSort):
            kinds += ["add", "sub"]
        match self.rng.choice(kinds):
            case "read":
                usable = [
                    n for n, (args, s) in VARS.items() if s == sort and all(_known(a, scope) for a in args)
                ]
                if not usable:
                    return self.leaf(sort, scope)
                name = self.rng.choice(usable)
                later = self.primed and self.rng.random() < 0.5
                return t.Read(name, tuple(inner(a) for a in VARS[name][0]), sort, later)
            case "ite":
                return t.Ite(inner(BOOL), inner(sort), inner(sort))
            case "not":
                return t.Not(inner(BOOL))
            case "and" | "or" as word:
                args = tuple(inner(BOOL) for _ in range(self.rng.randint(2, 3)))
                return t.And(args) if word == "and" else t.Or(args)
            case "eq":
                of = self.rng.choice([s for s in (BOOL, COLOUR, SMALL, THING, PLACE) if _known(s, scope)])
                return t.Eq(inner(of), inner(of))
            case "le":
                return t.Le(inner(SMALL), inner(SMALL))
            case "in" if _known(THING, scope):
                return t.InSet("chosen", inner(THING))
            case "add":
                return t.Add(inner(sort), inner(sort))
            case "sub":
                return t.Sub(inner(sort), inner(sort))
            case "forall" | "exists":
                return self.claim(scope, depth)
            case _:
                return self.leaf(sort, scope)

    def claim(self, scope: Scope, depth: int) -> t.Term:
        """A quantified condition."""
        names = self.rng.sample("xyz", self.rng.randint(1, 2))
        bound: dict[str, Sort] = {n: self.rng.choice((THING, PLACE, COLOUR)) for n in names}
        variables = tuple(t.Var(name, s) for name, s in bound.items())
        body = self.term(BOOL, {**scope, **bound}, depth - 1)
        return t.ForAll(variables, body) if self.rng.random() < 0.5 else t.Exists(variables, body)


def _known(sort: Sort, scope: Scope) -> bool:
    return not isinstance(sort, UninterpretedSort) or sort in scope.values()


def cells() -> list[tuple[Cell, Sort]]:
    """All cells with their sorts."""
    return [
        ((name, args), sort)
        for name, (sorts, sort) in VARS.items()
        for args in product(*(DOMAIN.of(s) for s in sorts))
    ]
