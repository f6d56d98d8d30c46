"""Makes a failing case small: fewer events, simpler requests, fewer features; keeps what still fails.

Deleting comes first (halves, quarters, ... single events), then each `Add` loses its features one by one, then the setup.
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
    """The smallest failing case found in the time; `fails` must hold for the case given."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = case
        for candidates in (_deletions, _features, _numbers, _setups):
            case = _descend(case, candidates, fails, end)
        if case == before:
            break
    return case


def _descend(case: Case, candidates: Callable[[Case], Iterator[Case]], fails: Fails, end: float) -> Case:
    found = True
    while found and time.monotonic() < end:
        found = False
        for smaller in candidates(case):
            if time.monotonic() > end:
                break
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _deletions(case: Case) -> Iterator[Case]:
    """The end cut off, then ever smaller pieces taken out."""
    events = case.events
    size = len(events) // 2
    while size:
        for start in range(0, len(events), size):
            yield replace(case, events=events[:start] + events[start + size :])
        size //= 2


def _with(case: Case, i: int, event: Event) -> Case:
    return replace(case, events=(*case.events[:i], event, *case.events[i + 1 :]))


def _changed(value: T, name: str, content: object) -> T:
    """A copy with one field changed."""
    return replace(value, **{name: content})  # type: ignore[type-var]


_KEPT = {"rid", "own", "answer"}


def _features(case: Case) -> Iterator[Case]:
    """A request loses one feature."""
    for i, event in enumerate(case.events):
        if isinstance(event, Add):
            for field in fields(Add):
                if field.name not in _KEPT and getattr(event, field.name) != field.default:
                    if field.name == "shared" and not event.own:
                        continue
                    yield _with(case, i, _changed(event, field.name, field.default))


def _numbers(case: Case) -> Iterator[Case]:
    """A number becomes smaller; a list of ids becomes one."""
    for i, event in enumerate(case.events):
        match event:
            case Add():
                for name in ("own", "shared", "answer", "match"):
                    value = getattr(event, name)
                    least = 0 if name in {"shared", "match"} else 1
                    if event.images and name == "own":
                        least = 1 + 4 * event.images
                    for smaller in sorted({least, value // 2, value - 1}):
                        if least <= smaller < value:
                            yield _with(case, i, _changed(event, name, smaller))
            case Answer(accept) if accept:
                yield _with(case, i, Answer(0))
            case Abort(rids) if len(rids) > 1:
                yield from (_with(case, i, Abort((rid,))) for rid in rids)
            case _:
                pass


def _setups(case: Case) -> Iterator[Case]:
    """A feature of the setup goes back to its default."""
    for field in fields(Setup):
        if getattr(case.setup, field.name) != field.default:
            yield replace(case, setup=_changed(case.setup, field.name, field.default))
