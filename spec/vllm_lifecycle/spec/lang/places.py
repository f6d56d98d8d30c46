"""Places: the arguments at which a state variable is read or assigned, and what is wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Protocol

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.sorts import DefinitionError, Sort, compatible


class Schema(Protocol):
    """What a symbolic state has to know of the state variables: argument sorts and value sort by name."""

    def signature(self, name: str) -> tuple[tuple[Sort, ...], Sort]:
        """Argument sorts and value sort; raises DefinitionError for an unknown name."""
        ...


def generic_places(signature: tuple[tuple[Sort, ...], Sort]) -> tuple[t.Var, ...]:
    """Variables that stand for the arguments of a next-state function."""
    return tuple(t.Var(f"@{i}", sort) for i, sort in enumerate(signature[0]))


def key_of(key: object) -> tuple[object, ...]:
    """The arguments written between brackets."""
    return key if isinstance(key, tuple) else (key,)


def check_places(name: str, sorts: tuple[Sort, ...], args: tuple[t.Term | None, ...]) -> None:
    """Reject arguments of the wrong number or sort; None is an open place."""
    takes = f"{name} takes {len(sorts)} argument(s) ({', '.join(map(str, sorts))})"
    if len(args) != len(sorts):
        raise DefinitionError(f"{takes}, not {len(args)}")
    for arg, want in zip(args, sorts, strict=True):
        if arg is not None and not compatible(t.sort_of(arg), want):
            raise DefinitionError(f"{takes}: {t.sort_of(arg)} given for {want}")


def applied(name: str, function: Callable[..., object], places: Sequence[object]) -> object:
    """The value that a function gives the open places of an assignment."""
    try:
        inspect.signature(function).bind(*places)
    except TypeError:
        raise DefinitionError(
            f"{name} is assigned at {len(places)} open place(s): give a value, or a function of as many parameters"
        ) from None
    return function(*places)


def are_apart(one: tuple[t.Term | None, ...], two: tuple[t.Term | None, ...]) -> bool:
    """Whether two assigned places surely differ: some argument position holds two different literals."""
    return any(
        isinstance(a, t.Lit) and isinstance(b, t.Lit) and a != b for a, b in zip(one, two, strict=True)
    )
