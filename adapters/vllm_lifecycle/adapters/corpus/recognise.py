"""Recognisers: predicates on a reported finding, put together from what it says.

A finding counts for a row when it is the same property at the same place by the same kind of sequence.  Recognisers are data
of the rows; they run on findings that are already reported, and can find nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """A reported finding as it was saved."""

    claim: str
    message: str
    site: str
    fault: str
    breach: str
    kind: str
    scope: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]

    @staticmethod
    def read(data: Mapping[str, Any]) -> Found:
        """From the plain form of a finding; KeyError when it is none."""
        return Found(
            data["property"],
            data["message"],
            data["site"],
            data["fault"],
            data["breach"],
            data["kind"],
            data["scope"],
            tuple(data["events"]),
        )


Recogniser = Callable[[Found], bool]


def every(*parts: Recogniser) -> Recogniser:
    """All of them."""
    return lambda f: all(part(f) for part in parts)


def some(*parts: Recogniser) -> Recogniser:
    """At least one of them."""
    return lambda f: any(part(f) for part in parts)


def no(part: Recogniser) -> Recogniser:
    """Not this one."""
    return lambda f: not part(f)


def claim(*names: str) -> Recogniser:
    """One of these properties fell."""
    return lambda f: f.claim in names


def at(*functions: str) -> Recogniser:
    """It fell in one of these functions."""
    return lambda f: f.site.rpartition(" ")[2] in functions


def after(*kinds: str) -> Recogniser:
    """The last event is of one of these kinds."""
    return lambda f: bool(f.events) and f.events[-1]["event"] in kinds


def has(kind: str, /, **values: Any) -> Recogniser:
    """Some event is of that kind, with those values."""
    return lambda f: any(
        e["event"] == kind and all(e.get(name) == value for name, value in values.items()) for e in f.events
    )


def of_kind(text: str) -> Recogniser:
    """The mechanism of the finding says so."""
    return lambda f: text in f.kind


def blames(party: str) -> Recogniser:
    """Whose fault it is."""
    return lambda f: f.fault == party


def in_scope(**values: Any) -> Recogniser:
    """The scope has those features; True and False ask for any and none."""

    def check(f: Found) -> bool:
        return all(
            bool(f.scope.get(name)) == value if isinstance(value, bool) else f.scope.get(name) == value
            for name, value in values.items()
        )

    return check


def loads(f: Found) -> bool:
    """Some request is loaded between steps."""
    return any(e["event"] == "Add" and e["match"]["between_steps"] for e in f.events)


def dies(*functions: str) -> Recogniser:
    """An exception left the scheduler, from one of these functions."""
    return every(lambda f: f.claim.startswith("the_engine_"), at(*functions))
