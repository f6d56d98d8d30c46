"""Playing sequences with judgement: one event at a time, each state judged, the first failures reported.

A `Failure` is what the search collects and the shrinker minimises; `signature` is what must stay the same while a
sequence is made smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .canonical import Key
from .config import Workshop
from .contract import IMPOSSIBLE, LEGAL, judge
from .driver import PATIENCE, Driver, EngineDied, patience
from .events import Event, Party, party
from .interim_checks import Violation, violations
from .progress import continue_fairly
from .snapshot import Snapshot

SURVIVES = "the_engine_survives_every_event"


@dataclass(frozen=True)
class Failure:
    """A property that fell, by which sequence, and how."""

    property: str
    subject: str
    message: str
    site: str
    events: tuple[Event, ...]
    after: str = ""
    """Kind of the event after which it showed; `fairness` when it showed in the fair continuation."""

    @property
    def signature(self) -> tuple[str, str]:
        """Property and call site: equal for the same failure of a smaller sequence."""
        return self.property, self.site or f"{self.after} {self.subject.split(' ')[0] if self.site else ''}".strip()


@dataclass
class Game:
    """A driver with the sequence played so far and the violations already present."""

    driver: Driver
    events: tuple[Event, ...] = ()
    breaches: list[tuple[Party, str]] = field(default_factory=list)
    present: set[tuple[str, str]] = field(default_factory=set)

    def play(self, event: Event, before: Snapshot | None = None) -> list[Failure]:
        """Apply one event and judge the state after it; the failures that are new.  A death ends the game."""
        driver = self.driver
        self.push(event)
        try:
            if before is None:
                before = driver.snapshot()
            driver.apply(event)
        except EngineDied as death:
            return [self._death(death, type(event).__name__)]
        return self._new(violations(driver, event, before, driver.snapshot()), type(event).__name__)

    def push(self, event: Event) -> None:
        """Note the event and whether it breaks the contract."""
        verdict = judge(self.driver, event)
        if verdict not in (LEGAL, IMPOSSIBLE):
            self.breaches.append((party(event), verdict))
            self.driver.truth.breaches += 1
        self.events = (*self.events, event)

    def _death(self, death: EngineDied, after: str) -> Failure:
        return Failure(SURVIVES, "engine", str(death), death.site, self.events, after)

    def _new(self, found: list[Violation], after: str) -> list[Failure]:
        fresh = [v for v in found if v.key not in self.present]
        self.present = {v.key for v in found}
        return [Failure(v.property, v.subject, v.message, "", self.events, after) for v in fresh]

    def outlook(self, good: set[Key]) -> Failure | None:
        """Go on fairly to the end (the game is over then); what never happens, or the death met."""
        try:
            verdict, _ = continue_fairly(self.driver, good)
        except EngineDied as death:
            return self._death(death, "fairness")
        if verdict is None:
            return None
        return Failure(verdict.property, verdict.subject, verdict.message, "", self.events, "fairness")


def replay(shop: Workshop, events: tuple[Event, ...]) -> Game:
    """Play a sequence known to be harmless, without judging the states on the way."""
    game = Game(Driver(shop))
    for event in events:
        game.push(event)
        game.driver.apply(event)
    return game


def play_all(shop: Workshop, events: tuple[Event, ...]) -> list[Failure]:
    """Play and judge a sequence from the start; events that are impossible where they stand are left out.

    All failures in order; after a death nothing is played; otherwise the fair continuation of the end is judged too.
    """
    game = Game(Driver(shop))
    failures: list[Failure] = []
    with patience(PATIENCE):
        for event in events:
            if judge(game.driver, event) == IMPOSSIBLE:
                continue
            failures += game.play(event)
            if failures and failures[-1].property == SURVIVES:
                return failures
        last = game.outlook(set())
    return failures + ([last] if last else [])
