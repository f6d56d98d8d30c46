"""Delta debugging of a failing sequence: the same failure by fewer and plainer events.

First whole chunks of events are left out, then single ones, then the fields of each event are replaced by plainer
values.  "The same failure" is the same property at the same call site (for deaths) or of the same kind; events that
become impossible on the way are skipped by the replay, so a smaller sequence is always a legal play.  Breaches are
tried for removal first, and none is ever brought in: a failure that needs none is the scheduler's alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .config import Workshop
from .driver import Driver, EngineDied
from .events import Add, Answer, Event
from .play import Failure, Game, play_all
from .scope import NO_MATCH

ENDLESS_REPLAYS = 12
"""Replays that minimising an endless call may cost: each one that shows it takes the whole patience."""


@dataclass
class Budget:
    """How much a minimisation may still cost."""

    replays: int
    until: float

    def spend(self) -> bool:
        """Take one replay; False when there is none left."""
        self.replays -= 1
        return self.replays >= 0 and time.monotonic() < self.until


def shrink(shop: Workshop, failure: Failure, until: float = math.inf, replays: int = 400) -> Failure:
    """The smallest sequence found with the same failure, within that many replays and before `until`."""
    budget = Budget(min(replays, ENDLESS_REPLAYS) if failure.endless else replays, until)
    best = _check(shop, failure.events, failure, budget) or failure
    best = _without_breaches(shop, best, budget)
    changed = True
    while changed:
        before = best.events
        best = _plainer(shop, _fewer(shop, best, budget), budget)
        changed = best.events != before
    return best


def _check(shop: Workshop, events: tuple[Event, ...], wanted: Failure, budget: Budget) -> Failure | None:
    """The wanted failure when that sequence still shows it."""
    if not budget.spend():
        return None
    for failure in play_all(shop, events):
        if failure.same == wanted.same:
            return failure if failure.breaches <= wanted.breaches else None
    return None


def _fewer(shop: Workshop, best: Failure, budget: Budget) -> Failure:
    size = max(1, len(best.events) // 2)
    while size:
        at = 0
        while at < len(best.events):
            found = _check(shop, best.events[:at] + best.events[at + size :], best, budget)
            if found is not None and len(found.events) < len(best.events):
                best = found
            else:
                at += size
        size //= 2
    return best


def _without_breaches(shop: Workshop, best: Failure, budget: Budget) -> Failure:
    if not best.breaches:
        return best
    game, kept = Game(Driver(shop), shop.judge), []
    for event in best.events:
        count = len(game.breaches)
        try:
            game.push(event)
            game.apply(event)
        except EngineDied:
            break
        if len(game.breaches) == count:
            kept.append(event)
    return _check(shop, tuple(kept), best, budget) or best


def _plainer(shop: Workshop, best: Failure, budget: Budget) -> Failure:
    for at, event in enumerate(best.events):
        for simple in _simpler(event):
            events = (*best.events[:at], simple, *best.events[at + 1 :])
            found = _check(shop, events, best, budget)
            if found is not None and len(found.events) <= len(best.events):
                best = found
                break
        if at + 1 >= len(best.events):
            break
    return best


def _simpler(event: Event) -> Iterator[Event]:
    """Plainer forms of one event, plainest first."""
    match event:
        case Add():
            for plain in (
                {"match": NO_MATCH, "hold": False},
                {"match": NO_MATCH},
                {"hold": False},
                {"session": False},
            ):
                simple = replace(event, **plain)
                if simple != event:
                    yield simple
            if event.grammar or event.images or event.priority:
                yield replace(event, grammar=False, images=0, picture=0, priority=0)
        case Answer() if event != Answer():
            yield Answer()
        case _:
            return
