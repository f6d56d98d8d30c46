"""The search: exhaustive by breadth at small scope, then random walks beyond it.

States are recognised by their canonical hash; going back is a replay from the start, which is cheaper than any copy (see
`config`).  Failures are collected by signature, the shortest sequence kept.  Bounds and whether they cut anything off
are part of the result: `Coverage.complete` is true only when every reachable state within the scope's own limits was
expanded.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_lifecycle.spec.lang.sparse import Sparse

from .canonical import Key, state_key
from .config import Workshop
from .driver import PATIENCE, Driver, Endless, patience
from .enabled import enabled
from .events import (
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
    Schedule,
)
from .interruption import Interruption
from .play import Failure, Game, replay
from .scope import LONG, Scope
from .snapshot import Snapshot

WEIGHTS: tuple[tuple[type, float], ...] = (
    (Schedule, 6.0),
    (Answer, 5.0),
    (Add, 3.0),
    (Report, 2.0),
    (Abort, 0.7),
)
OTHERS = 0.7
HALF, MOST = 0.5, 0.9
"""Parts of the time for the exhaustive search."""
OPTIONAL = (Abort, Report, Continue, Close, Reset, Pause, Decide, Grammar)
Progress = Callable[[str], None]
HANGS = "a call that does not return"
"""What cuts a search off that met an endless call: each further one would cost as much as thousands of states."""


class Hangs(Exception):
    """The search met a call that does not return."""


@dataclass
class Coverage:
    """What was explored: the honest scope of the verdict."""

    scope: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    complete: bool = False
    cut_by: str = ""
    walks: int = 0
    walk_events: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        how = "complete" if self.complete else f"cut off by {self.cut_by or 'time'}"
        rate = (self.transitions + self.walk_events) / self.seconds if self.seconds else 0.0
        return (
            f"{self.scope}: {self.states} states, {self.transitions} transitions to depth {self.depth} ({how}); "
            f"{self.walks} random walks, {self.walk_events} events; {self.seconds:.1f} s, {rate:.0f} events/s"
        )


@dataclass
class Harvest:
    """Failures by signature with the shortest sequence of each, and the coverage."""

    coverage: Coverage
    failures: dict[tuple[str, str, bool], Failure] = field(default_factory=dict)
    hits: dict[tuple[str, str, bool], int] = field(default_factory=dict)

    def add(self, failure: Failure) -> None:
        known = self.failures.get(failure.signature)
        self.hits[failure.signature] = self.hits.get(failure.signature, 0) + 1
        if known is None or (failure.breaches, len(failure.events)) < (known.breaches, len(known.events)):
            self.failures[failure.signature] = failure
        if failure.endless:
            raise Hangs


@dataclass(frozen=True)
class _Node:
    events: tuple[Event, ...]
    present: frozenset[tuple[str, str]]
    seen: tuple[Snapshot, Sparse] | None


class _Mood:
    """What one walk likes to do: each walk leaves out some kinds of event altogether (swarm testing).

    Without it rare combinations drown in aborts and stops, since a walk of all kinds rarely lets anything run long.
    """

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.out = {kind for kind in OPTIONAL if source.random() < 0.5}
        self.plain_answers = source.random() < 0.5

    def choose(self, offers: list[Event]) -> Event:
        """By kind first (weighted), then evenly: many shapes of one kind do not crowd out the others."""
        kinds: dict[type, list[Event]] = {}
        for event in offers:
            kinds.setdefault(type(event), []).append(event)
        if self.plain_answers and Answer() in offers:
            kinds[Answer] = [Answer()]
        liked = {kind: shapes for kind, shapes in kinds.items() if kind not in self.out} or kinds
        weights = [dict(WEIGHTS).get(kind, OTHERS) for kind in liked]
        (kind,) = self.random.choices(list(liked), weights)
        return self.random.choice(liked[kind])


class Search:
    """One exploration of one scope on one target."""

    def __init__(
        self, shop: Workshop, seed: int, progress: Progress | None = None, walks: int | None = None
    ) -> None:
        """`walks` bounds the random walks; without it they fill the time."""
        self.shop = shop
        self.most_walks = math.inf if walks is None else walks
        self.scope: Scope = shop.scope
        self.random = random.Random(f"{seed} {self.scope.name}")
        self.harvest = Harvest(Coverage(self.scope.name))
        self.good: set[Key] = set()
        self.tell = progress or (lambda line: None)
        self._told = 0.0
        self.interruption = Interruption()

    def run(self, seconds: float, exhaustive_part: float | None = None) -> Harvest:
        """Explore for that long; the exhaustive search gets its part first, the walks get what is left.

        With the whole part, it is an exhaustive search only, and ends when there is nothing new.  Without a part named, half
        of the time, and most of it in a scope that is meant to be exhausted.  Raises KeyboardInterrupt on Ctrl-C.
        """
        start, c = time.monotonic(), self.harvest.coverage
        part = (MOST if self.scope.events >= LONG else HALF) if exhaustive_part is None else exhaustive_part
        try:
            with Interruption() as self.interruption:
                self._breadth(start + seconds * part)
                if part < 1.0:
                    self._walks(start + seconds)
        except Hangs:
            c.complete, c.cut_by = False, HANGS
        except Endless:
            c.complete, c.cut_by = False, f"a state that takes more than {PATIENCE:g} s to judge"
        finally:
            c.seconds = time.monotonic() - start
        if c.complete and self.scope.connector_class:
            c.complete, c.cut_by = False, "the connector's own state, which is seen in part"
        return self.harvest

    def _breadth(self, end: float) -> None:
        c = self.harvest.coverage
        seen: set[Key] = {state_key(Driver(self.shop))}
        frontier: deque[_Node] = deque([_Node((), frozenset(), None)])
        deeper = False
        while frontier:
            node = frontier.popleft()
            c.depth = len(node.events)
            if c.depth >= self.scope.events:
                deeper = True
                break
            for event in enabled(replay(self.shop, node.events).driver):
                if time.monotonic() > end:
                    c.cut_by = "time"
                    return
                child = self._step(node, event, seen)
                c.states = len(seen)
                if child is not None:
                    frontier.append(child)
            self._report(f"{len(seen)} states, {c.transitions} transitions, depth {c.depth}")
        c.complete, c.cut_by = not deeper, "depth" if deeper else ""

    def _step(self, node: _Node, event: Event, seen: set[Key]) -> _Node | None:
        """Apply one event after a node; the child when its state is new."""
        self.interruption.stop()
        self.harvest.coverage.transitions += 1
        with patience(PATIENCE):
            game = replay(self.shop, node.events)
            game.present = set(node.present)
            game.seen = node.seen
            failures = game.play(event)
            for failure in failures:
                self.harvest.add(failure)
            if any(f.final for f in failures):
                return None
            key = state_key(game.driver)
            if key in seen:
                return None
            seen.add(key)
            child = _Node(game.events, frozenset(game.present), game.seen)
            outlook = game.outlook(self.good)
            if outlook is not None:
                self.harvest.add(outlook)
        return child

    def _walks(self, end: float) -> None:
        c = self.harvest.coverage
        while c.walks < self.most_walks and time.monotonic() < end:
            c.walks += 1
            with patience(PATIENCE):
                self._walk()
            self._report(f"{c.walks} walks, {c.walk_events} events")

    def _walk(self) -> None:
        game = Game(Driver(self.shop), self.shop.judge)
        mood = _Mood(self.random)
        for _ in range(self.random.randint(self.scope.walk // 2, self.scope.walk)):
            self.interruption.stop()
            offers = enabled(game.driver)
            if not offers:
                break
            self.harvest.coverage.walk_events += 1
            failures = game.play(mood.choose(offers))
            for failure in failures:
                self.harvest.add(failure)
            if any(f.final for f in failures):
                return
        outlook = game.outlook(self.good)
        if outlook is not None:
            self.harvest.add(outlook)

    def _report(self, line: str) -> None:
        now = time.monotonic()
        if now - self._told > 1.0:
            self._told = now
            self.tell(f"{self.scope.name}: {line}, {len(self.harvest.failures)} kinds of failure")
