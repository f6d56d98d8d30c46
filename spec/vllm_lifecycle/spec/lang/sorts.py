"""Sorts: the types of the specification language.

Four kinds: booleans, the members of a Python `Enum`, bounded integers, and uninterpreted sorts such as `Request`
(individuals that can only be compared for equality). Uninterpreted sorts are what makes a proof hold for any number of
requests and blocks, and what makes renaming them an exact symmetry. Sorts are plain frozen values: two sorts are the
same when they are equal, never because they share a global name in some solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DefinitionError(ValueError):
    """A definition of the specification is ill-formed; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class BoolSort:
    """Truth values."""

    def __str__(self) -> str:
        return "Bool"


@dataclass(frozen=True, slots=True)
class EnumSort:
    """The members of a Python `Enum` class, in definition order."""

    cls: type[Enum]

    @property
    def members(self) -> tuple[Enum, ...]:
        """All members, in definition order."""
        return tuple(self.cls)

    def __str__(self) -> str:
        return self.cls.__name__


@dataclass(frozen=True, slots=True)
class IntSort:
    """Integers from `low` to `high` inclusive; `high` may name a rigid constant that a scope fixes."""

    low: int
    high: int | str

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class UninterpretedSort:
    """A sort of individuals without structure: any number of them, told apart by identity only."""

    name: str

    def __str__(self) -> str:
        return self.name


Sort = BoolSort | EnumSort | IntSort | UninterpretedSort
BOOL = BoolSort()


def compatible(left: Sort, right: Sort) -> bool:
    """Whether terms of the two sorts may be compared or assigned: integers of any range, otherwise the same sort."""
    if isinstance(left, IntSort) and isinstance(right, IntSort):
        return True
    return left == right
