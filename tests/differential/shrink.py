"""Makes a failing case small: fewer events, simpler requests, fewer features; keeps what still fails.

Deleting comes first (halves, quarters, ... single events), then each `Add` loses its features, all of them or one by one, then
numbers fall, then the setup.  A pass goes on from where it succeeded instead of starting anew, so that it costs one replay for
each candidate; the passes are repeated until none finds anything or the time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TypeVar

from tests.differential.settings import Abort, Add, Answer, Case, Event, Setup

T = TypeVar("T")
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, seconds: float = 20.0) -> Case:
    """The smallest failing case found in so many CPU seconds, so that load changes nothing; `fails` must hold for `case`."""
    end = time.process_time() + seconds

    def still(smaller: Case) -> bool:
        return time.process_time() < end and fails(smaller)

    before = None
    while case != before and time.process_time() < end:
        before = case
        case = _delete(case, still)
        for i in reversed(range(len(case.events))):
            for simpler in (_plainer, _smaller):
                case = _simplify(case, i, simpler, still)
        case = _simpler_setup(case, still)
    return case


def _delete(case: Case, fails: Fails) -> Case:
    """Pieces taken out, large ones first, from the end to the start."""
    size = max(1, len(case.events) // 2)
    while size:
        start = len(case.events) - size
        while start > -size:
            events = case.events[: max(0, start)] + case.events[start + size :]
            smaller = replace(case, events=events)
            if fails(smaller):
                case = smaller
            start -= size
        size //= 2
    return case


def _simplify(case: Case, i: int, simpler: Callable[[Event], Iterator[Event]], fails: Fails) -> Case:
    """One event made simpler as often as it goes."""
    found = True
    while found:
        found = False
        for event in simpler(case.events[i]):
            smaller = replace(case, events=(*case.events[:i], event, *case.events[i + 1 :]))
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _changed(value: T, name: str, content: object) -> T:
    """A copy with one field changed."""
    return replace(value, **{name: content})  # type: ignore[type-var]


def _plainer(event: Event) -> Iterator[Event]:
    """A request without its features: all of them at once, or one."""
    if isinstance(event, Add):
        bare = Add(event.rid, own=event.own or 1, answer=event.answer)
        if event != bare:
            yield bare
        for field in fields(Add):
            changed = getattr(event, field.name) != field.default
            if (
                changed
                and field.name not in {"rid", "own", "answer"}
                and (field.name != "shared" or event.own)
            ):
                yield _changed(event, field.name, field.default)


def _smaller(event: Event) -> Iterator[Event]:
    """A number becomes smaller; a list of ids becomes one."""
    match event:
        case Add():
            for name in ("own", "shared", "answer", "match"):
                value = getattr(event, name)
                least = 0 if name in {"shared", "match"} else 1 + 4 * event.images * (name == "own")
                for smaller in sorted({least, value // 2, value - 1}):
                    if least <= smaller < value:
                        yield _changed(event, name, smaller)
        case Answer(accept) if accept:
            yield Answer(0)
        case Abort(rids) if len(rids) > 1:
            yield from (Abort((rid,)) for rid in rids)
        case _:
            pass


def _simpler_setup(case: Case, fails: Fails) -> Case:
    """Features of the setup go back to their defaults."""
    for field in fields(Setup):
        if getattr(case.setup, field.name) != field.default:
            smaller = replace(case, setup=_changed(case.setup, field.name, field.default))
            if fails(smaller):
                case = smaller
    return case
