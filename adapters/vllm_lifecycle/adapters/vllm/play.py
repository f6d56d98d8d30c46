"""Playing sequences with judgement: one event at a time, each state judged, the first failures reported.

A `Failure` is what the search collects and the shrinker minimises; `signature` is what must stay the same while a
sequence is made smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_lifecycle.spec.lang.sparse import Sparse

from . import rules
from .binding import bind
from .canonical import Key
from .config import Workshop
from .contract import IMPOSSIBLE, LEGAL, judge
from .driver import PATIENCE, Driver, Endless, EngineDied, patience
from .events import Answer, Event, Party, party
from .progress import continue_fairly
from .snapshot import Snapshot
from .verdicts import QUESTIONS, Judge, death_claim
from .violation import Violation

KEEPS_CONTRACT = "the_connector_keeps_its_contract"
"""The claim about a connector of the user's: every answer of a hook keeps the rules of the interface (see `listen`)."""


@dataclass(frozen=True)
class Failure:
    """A claim that fell, by which sequence, and how."""

    claim: str
    subject: str
    message: str
    site: str
    """Where the exception left the scheduler; empty when the engine lives."""
    events: tuple[Event, ...]
    after: str = ""
    """The occasion on which it showed (see `Game.occasion`); `fairness` when it showed in the fair continuation."""
    kind: str = ""
    breaches: int = 0
    """How many events of the sequence break the contract."""
    endless: bool = False
    """Whether the last call does not return."""

    @property
    def signature(self) -> tuple[str, str, bool]:
        """What a search keeps one sequence of: the claim, the call site or kind, and whether a breach is needed."""
        return self.claim, self.site or f"{self.after} {self.kind}".strip(), self.breaches > 0

    @property
    def same(self) -> tuple[str, str, str]:
        """What must not change while a sequence is made smaller: the site of a death, else claim, last call and kind."""
        return ("death", self.site, "") if self.site else (self.claim, self.after, self.kind)

    @property
    def final(self) -> bool:
        """Whether the sequence ends here: the engine is dead, or the books are wrong and what follows is noise."""
        return self.claim not in QUESTIONS


@dataclass
class Game:
    """A driver with the sequence played so far and the violations already present."""

    driver: Driver
    judge: Judge
    events: tuple[Event, ...] = ()
    breaches: list[tuple[Party, str]] = field(default_factory=list)
    present: set[tuple[str, str]] = field(default_factory=set)
    seen: tuple[Snapshot, Sparse] | None = None
    """The state before the next event, when it is known already."""

    def look(self) -> tuple[Snapshot, Sparse]:
        """Observe the present state."""
        snapshot = self.driver.snapshot()
        return snapshot, bind(self.driver, snapshot, self.judge.names)

    def play(self, event: Event) -> list[Failure]:
        """Apply one event and judge the state after it; the failures that are new.  A death ends the game."""
        before, after = self.seen or self.look(), self.occasion(event)
        self.push(event)
        try:
            broken = self.apply(event)
        except EngineDied as death:
            return [self._death(death, after)]
        now = self.seen = self.look()
        failures = self._new(self.judge.violations(self.driver, event, *before, *now), after)
        return [*failures, *(self._broken(rule, after) for rule in broken)]

    def occasion(self, event: Event) -> str:
        """The kind of call that the event is: an answer also by what it carries for others than the model."""
        name = type(event).__name__
        if not isinstance(event, Answer):
            return name
        carried = (*self.driver.truth.outbox.kinds, *self.driver.extension.carried())
        return f"{name} with {', '.join(carried)}" if carried else name

    def apply(self, event: Event) -> list[str]:
        """Make the event happen; the rules that a connector of the user's broke in it.  Raises EngineDied."""
        try:
            self.driver.apply(event)
        finally:
            broken, self.driver.truth.noticed = self.driver.truth.noticed, []
            self.breaches += [("connector", rule) for rule in broken]
        return broken

    def push(self, event: Event) -> None:
        """Note the event and whether it breaks the contract."""
        verdict = judge(self.driver, event)
        if verdict not in (LEGAL, IMPOSSIBLE):
            self.breaches.append((party(event), verdict))
            self.driver.truth.breakers.append(party(event))
        self.events = (*self.events, event)

    def _broken(self, rule: str, after: str) -> Failure:
        text = f"The connector broke a rule of its interface: {rule}."
        return Failure(KEEPS_CONTRACT, "connector", text, "", self.events, after, rule, len(self.breaches))

    def _death(self, death: EngineDied, after: str) -> Failure:
        claim = death_claim(self.driver)
        endless = isinstance(death.error, Endless)
        return Failure(
            claim, "engine", str(death), death.site, self.events, after, "", len(self.breaches), endless
        )

    def _new(self, found: list[Violation], after: str) -> list[Failure]:
        """Of several that fall at once the first says it all: truth is judged first, the rest follows from it."""
        fresh = [v for v in found if v.key not in self.present]
        self.present = {v.key for v in found}
        grave = [v for v in fresh if v.claim not in QUESTIONS]
        chosen = [v for v in fresh if v.claim in QUESTIONS] + grave[:1]
        count = len(self.breaches)
        return [Failure(v.claim, v.subject, v.message, "", self.events, after, v.kind, count) for v in chosen]

    def outlook(self, good: set[Key]) -> Failure | None:
        """Go on fairly to the end (the game is over then); what never happens, or the death met."""
        used: list[Event] = []
        try:
            v = continue_fairly(self.driver, good, used)
        except EngineDied as death:
            self.events = (*self.events, *used)
            return self._death(death, type(used[-1]).__name__)
        if v is None:
            return None
        waiting = self.driver.truth.lives.get(v.subject)
        if waiting is not None and waiting.undecided:
            self.breaches.append(("connector", rules.DECIDED_IN_THE_END))
        count = len(self.breaches)
        return Failure(v.claim, v.subject, v.message, "", self.events, "fairness", v.kind, count)


def replay(shop: Workshop, events: tuple[Event, ...]) -> Game:
    """Play a sequence known to be harmless, without judging the states on the way."""
    game = Game(Driver(shop), shop.judge)
    for event in events:
        game.push(event)
        game.apply(event)
    return game


def play_all(shop: Workshop, events: tuple[Event, ...]) -> list[Failure]:
    """Play and judge a sequence from the start; events that are impossible where they stand are left out.

    All failures in order; nothing is played after a final one; otherwise the fair continuation is judged too.
    """
    game = Game(Driver(shop), shop.judge)
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
