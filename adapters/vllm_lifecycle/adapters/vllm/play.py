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
from .interim_checks import QUESTIONS, Violation, violations
from .progress import continue_fairly
from .snapshot import Snapshot

SURVIVES = "the_engine_survives_every_event"


@dataclass(frozen=True)
class Failure:
    """A property that fell, by which sequence, and how."""

    claim: str
    subject: str
    message: str
    site: str
    events: tuple[Event, ...]
    after: str = ""
    """Kind of the event after which it showed; `fairness` when it showed in the fair continuation."""
    kind: str = ""
    breaches: int = 0
    """How many events of the sequence break the contract."""

    @property
    def signature(self) -> tuple[str, str]:
        """Property and call site (or what stands for it): equal for the same failure of a smaller sequence."""
        return self.claim, self.site or f"{self.after} {self.kind}".strip()

    @property
    def final(self) -> bool:
        """Whether the sequence ends here: the engine is dead, or the books are wrong and what follows is noise."""
        return self.claim not in QUESTIONS


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
        return Failure(SURVIVES, "engine", str(death), death.site, self.events, after, "", len(self.breaches))

    def _new(self, found: list[Violation], after: str) -> list[Failure]:
        """Of several that fall at once the first says it all: custody is judged first, the rest follows from it."""
        fresh = [v for v in found if v.key not in self.present]
        self.present = {v.key for v in found}
        count = len(self.breaches)
        grave = [v for v in fresh if v.claim not in QUESTIONS]
        fresh = [v for v in fresh if v.claim in QUESTIONS] + grave[:1]
        return [Failure(v.claim, v.subject, v.message, "", self.events, after, v.kind, count) for v in fresh]

    def outlook(self, good: set[Key]) -> Failure | None:
        """Go on fairly to the end (the game is over then); what never happens, or the death met."""
        used: list[Event] = []
        try:
            verdict = continue_fairly(self.driver, good, used)
        except EngineDied as death:
            self.events = (*self.events, *used)
            return self._death(death, type(used[-1]).__name__)
        if verdict is None:
            return None
        v = verdict
        return Failure(v.claim, v.subject, v.message, "", self.events, "fairness", v.kind, len(self.breaches))


def replay(shop: Workshop, events: tuple[Event, ...]) -> Game:
    """Play a sequence known to be harmless, without judging the states on the way."""
    game = Game(Driver(shop))
    for event in events:
        game.push(event)
        game.driver.apply(event)
    return game


def play_all(shop: Workshop, events: tuple[Event, ...]) -> list[Failure]:
    """Play and judge a sequence from the start; events that are impossible where they stand are left out.

    All failures in order; nothing is played after a final one; otherwise the fair continuation is judged too.
    """
    game = Game(Driver(shop))
    failures: list[Failure] = []
    with patience(PATIENCE):
        for event in events:
            if judge(game.driver, event) == IMPOSSIBLE:
                continue
            failures += game.play(event)
            if any(f.final for f in failures):
                return failures
        last = game.outlook(set())
    return failures + ([last] if last else [])
