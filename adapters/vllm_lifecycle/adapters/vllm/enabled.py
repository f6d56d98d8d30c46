"""Which events are worth offering in a driver state: the candidates of the scope, filtered by the contract."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from .contract import IMPOSSIBLE, LEGAL, judge
from .driver import Driver
from .events import (
    GHOST,
    Abort,
    Add,
    Answer,
    Close,
    Continue,
    Decide,
    Event,
    Grammar,
    Pause,
    Report,
    Reset,
    Resume,
    Schedule,
)
from .scope import NO_MATCH

MAX_BREACHES = 1
"""Breaches per sequence: a second one would only be blamed on the same sender again."""


def enabled(driver: Driver) -> list[Event]:
    """The events on offer now, legal ones first; at the hostile level also one breach per sequence."""
    legal: list[Event] = []
    breaches: list[Event] = []
    hostile = driver.scope.level == "hostile" and len(driver.truth.breakers) < MAX_BREACHES
    for event in candidates(driver):
        verdict = judge(driver, event)
        if verdict == LEGAL:
            legal.append(event)
        elif verdict != IMPOSSIBLE and hostile:
            breaches.append(event)
    return legal + breaches


def candidates(driver: Driver) -> Iterator[Event]:
    """Every event that the scope speaks of, possible or not."""
    scope, truth = driver.scope, driver.truth
    rids = list(truth.lives)
    if truth.steps:
        yield Answer()
        samples = sorted(truth.steps[0].samples)
        yield from (Answer(stop=rid) for rid in samples)
        if scope.drafts:
            yield Answer(accepted=0)
        if scope.handoff == "special_token":
            yield from (Answer(sentinel=rid) for rid in samples)
        yield from (Answer(empty=rid) for rid in samples)
        yield from (Answer(omit=rid) for rid in truth.steps[0].tokens)
    yield Schedule()
    for rid in rids:
        if scope.connector:
            yield from (Report(kind, rid) for kind in ("received", "receive failed", "block failed", "sent"))
        yield Abort(rid)
        if scope.sessions:
            yield Continue(rid)
            yield Close(rid)
        if scope.grammar:
            yield Grammar(rid, True)
            yield Grammar(rid, False)
        yield from (Decide(rid, m) for m in scope.matches if m.span != "unknown")
    if scope.connector:
        yield Report("received", GHOST)
        yield Report("sent", GHOST)
    yield from driver.extension.candidates()
    yield from adds(driver)
    if scope.resets:
        yield Reset(True)
        yield Reset(False)
    if scope.pauses:
        yield Pause(True)
        yield Pause(False)
        yield Resume()


def adds(driver: Driver) -> Iterator[Event]:
    """New requests: under the next unused id, and under each id already used."""
    scope, lives = driver.scope, driver.truth.lives
    rids = list(lives)
    if len(rids) < scope.requests:
        rids.append(f"r{len(rids)}")
    shapes: Iterator[tuple[Any, ...]] = product(
        scope.prompts,
        scope.answers,
        scope.sharing,
        scope.priorities,
        scope.matches if scope.connector else (NO_MATCH,),
        scope.holds if scope.connector else (False,),
        (False, True) if scope.sessions else (False,),
        (False, True) if scope.grammar else (False,),
        scope.images if scope.encoder else (0,),
        (False, True) if scope.pooling else (False,),
        range(1, scope.adapters + 1) if scope.adapters else (0,),
        scope.gallery or (0,),
    )
    for shape in shapes:
        prompt, answer, shared, *features = shape
        family = 0 if shared else 1 + driver.truth.adds
        yield from (Add(rid, prompt, answer, family, *features) for rid in rids)
