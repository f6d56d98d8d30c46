"""Which upstream line did it: the call site of a failure, found by replaying its last event under a trace.

For a state that broke: the scheduler's source is traced line by line, the property is judged between lines, and the
last line after which it fell for good is the site.  For a pass that brings nothing: the last `break` or `continue` at
which the pass gave up.  Deaths carry their site from the traceback.  Only finished findings pay for this.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from .config import Workshop
from .driver import Driver, EngineDied, short
from .events import Answer, Schedule
from .play import Failure, replay
from .progress import continue_fairly
from .verdicts import STUCK

Seen = Callable[[str, int, str], None]


def call_site(shop: Workshop, failure: Failure) -> str:
    """file:line function of the upstream code that made the property fall; empty when no line did."""
    if failure.site:
        return failure.site
    if failure.after == "fairness":
        return _giving_up(shop, failure) if failure.claim == STUCK else ""
    return _breaking_line(shop, failure)


def _breaking_line(shop: Workshop, failure: Failure) -> str:
    game = replay(shop, failure.events[:-1])
    driver, event = game.driver, failure.events[-1]
    before = game.look()
    wanted = (failure.claim, failure.subject)
    last = ""
    guilty = ""
    exits: list[str] = []

    def seen(path: str, line: int, function: str) -> None:
        nonlocal last, guilty
        if _gives_up(path, line, function):
            exits.append(f"{path}:{line} {function}")
        found = shop.judge.violations(driver, event, *before, *game.look())
        fallen = any(v.key == wanted for v in found)
        guilty = (guilty or last) if fallen else ""
        last = f"{path}:{line} {function}"

    _traced(driver, seen, lambda: driver.apply(event))
    return guilty or (exits[-1] if exits else last)


def _giving_up(shop: Workshop, failure: Failure) -> str:
    driver = replay(shop, failure.events).driver
    continue_fairly(driver, set(), [])
    while driver.truth.steps:
        driver.apply(Answer())
    if not driver.awake:
        return ""
    exits: list[str] = []

    def seen(path: str, line: int, function: str) -> None:
        if _gives_up(path, line, function):
            exits.append(f"{path}:{line} {function}")

    _traced(driver, seen, lambda: driver.apply(Schedule()))
    return exits[-1] if exits else ""


_FULL: dict[str, str] = {}


def _gives_up(path: str, line: int, function: str) -> bool:
    """Whether the line leaves or skips in the loops of a pass."""
    return function == "schedule" and linecache.getline(_FULL.get(path, path), line).strip() in (
        "break",
        "continue",
    )


def _traced(driver: Driver, seen: Seen, body: Callable[[], None]) -> None:
    """Run the body and call `seen` before each line of the scheduler's own sources (its class and bases)."""
    sources = {sys.modules[c.__module__].__file__ for c in type(driver.scheduler).__mro__ if c is not object}
    judging = False

    def trace(frame: FrameType, kind: str, arg: Any) -> Any:
        nonlocal judging
        name = frame.f_code.co_filename
        if judging or name not in sources or not Path(name).exists():
            return None
        if kind == "line":
            judging = True
            try:
                path = short(name)
                _FULL[path] = name
                seen(path, frame.f_lineno, frame.f_code.co_name)
            finally:
                judging = False
        return trace

    sys.settrace(trace)
    try:
        body()
    except EngineDied:
        pass
    finally:
        sys.settrace(None)
