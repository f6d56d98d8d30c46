"""Hypothesis walks: the explorer's actions as a `RuleBasedStateMachine`, for scopes too large to exhaust.

Each step draws a kind of event and then one of that kind, both from the explorer's own list of enabled events; the same
`Game` plays and judges it. What falls fails the example, so Hypothesis makes it small and keeps it in its example database:
the next run begins with what fell before. The shortest sequence of each failure goes into the `Harvest`, which `explore`
concludes as it does its own; the walks in its coverage are all sequences played, those of making small too. Each kind of
failure is an exception class of its own, since Hypothesis takes failures of one class and line for one bug.

Rejected: a rule per kind of event (Hypothesis would choose rules that have nothing to draw); Hypothesis' default folder with one
key for all targets (examples of one scope mean nothing in another, so each target and scope has its own folder).
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canonical import Key
from .config import Unusable, Workshop
from .driver import PATIENCE, Driver, Endless, patience
from .enabled import enabled
from .events import Event
from .interruption import Interruption
from .play import Failure, Game
from .search import HANGS, Coverage, Hangs, Harvest, Progress

if TYPE_CHECKING:
    from hypothesis import settings
    from hypothesis.stateful import RuleBasedStateMachine

FOLDER = Path(".hypothesis")
"""Where Hypothesis keeps its examples unless told otherwise."""

STOPS = "what fell, soon after which Hypothesis draws no more"


class Fallen(Exception):
    """A claim fell in an example."""


class TimeUp(BaseException):
    """The time is over. No `Exception`, so that Hypothesis does not take it for a failure."""


class Endlessly(BaseException):
    """A call does not return. Not to be made small by Hypothesis: each try would cost the whole patience."""


def check_hypothesis() -> None:
    """Raise Unusable when Hypothesis is not installed."""
    if find_spec("hypothesis") is None:
        raise Unusable("hypothesis is not installed: install vllm-lifecycle[test]")


class Walks:
    """Hypothesis walks in one scope on one target; used as a `Search` is."""

    def __init__(
        self,
        shop: Workshop,
        seed: int,
        progress: Progress | None = None,
        examples: int = 100,
        folder: Path = FOLDER,
    ) -> None:
        check_hypothesis()
        self.shop, self.seed, self.examples = shop, seed, examples
        self.harvest = Harvest(Coverage(shop.scope.name))
        self.good: set[Key] = set()
        self.folder = folder / "vllm_lifecycle" / _name(shop)
        self.tell = progress or (lambda line: None)
        self.end = 0.0
        self._classes: dict[tuple[str, str, bool], type[Fallen]] = {}
        self._told = 0.0
        self.interruption = Interruption()
        self.left: BaseException | None = None
        """What left an example to end the run: Hypothesis puts an error of its own in its place."""

    def run(self, seconds: float) -> Harvest:
        """Draw that many examples, or as many as the time allows.  Raises KeyboardInterrupt on Ctrl-C."""
        start, c = time.monotonic(), self.harvest.coverage
        self.end = start + seconds
        c.cut_by = f"the number of Hypothesis examples, {self.examples}"
        with Interruption() as self.interruption:
            try:
                self._draw()
            except BaseException:
                if self.left is None and not self.interruption.came:
                    raise
        c.seconds = time.monotonic() - start
        self.interruption.stop()
        match self.left:
            case None:
                pass
            case TimeUp():
                c.cut_by = "time"
            case Endlessly():
                c.cut_by = HANGS
            case Endless():
                c.cut_by = f"a state that takes more than {PATIENCE:g} s to judge"
            case other:
                raise other
        return self.harvest

    def _draw(self) -> None:
        from hypothesis import seed
        from hypothesis.stateful import run_state_machine_as_test

        try:
            run_state_machine_as_test(seed(self.seed)(state_machine(self)), settings=self._settings())
        except* Fallen:  # what fell is in the harvest
            self.harvest.coverage.cut_by = STOPS

    def _settings(self) -> settings:
        from hypothesis import HealthCheck, Phase, Verbosity, settings
        from hypothesis.database import DirectoryBasedExampleDatabase

        return settings(
            max_examples=self.examples,
            stateful_step_count=self.shop.scope.walk,
            database=DirectoryBasedExampleDatabase(self.folder),
            derandomize=False,
            deadline=None,
            print_blob=False,
            report_multiple_bugs=True,
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )

    def begin(self) -> Game:
        """A new example."""
        self.interruption.stop()
        c = self.harvest.coverage
        c.walks += 1
        if time.monotonic() - self._told > 1.0:
            self._told = time.monotonic()
            fallen = len(self.harvest.failures)
            self.tell(f"{c.scope}: {c.walks} examples, {c.walk_events} events, {fallen} kinds of failure")
        return Game(Driver(self.shop), self.shop.judge)

    def play(self, game: Game, event: Event) -> None:
        """Play and judge one event; raises Fallen when a claim falls."""
        with self._patiently():
            self.interruption.stop()
            if time.monotonic() > self.end:
                raise TimeUp
            self.harvest.coverage.walk_events += 1
            self._note(game.play(event))

    def finish(self, game: Game) -> None:
        """Judge how it goes on fairly; raises Fallen when a claim falls."""
        with self._patiently():
            outlook = game.outlook(self.good)
            self._note([] if outlook is None else [outlook])

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        try:
            with patience(PATIENCE):
                yield
        except Exception:
            raise
        except BaseException as why:
            self.left = why
            raise

    def _note(self, failures: list[Failure]) -> None:
        try:
            for failure in failures:
                self.harvest.add(failure)
        except Hangs:
            raise Endlessly from None
        if failures:
            which = failures[0].signature
            raise self._classes.setdefault(which, type("Fallen", (Fallen,), {}))(failures[0].message)


def state_machine(walks: Walks) -> type[RuleBasedStateMachine]:
    """The actions of the scope as a Hypothesis state machine: each instance is one sequence from the start."""
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule

    class Sequence(RuleBasedStateMachine):
        """One sequence of calls."""

        def __init__(self) -> None:
            super().__init__()
            self.game = walks.begin()
            self.outside = sys.exc_info()[1]

        @rule(data=st.data())
        def event(self, data: Any) -> None:
            """Draw the next event and play it."""
            kinds: dict[type[Event], list[Event]] = {}
            for offer in enabled(self.game.driver):
                kinds.setdefault(type(offer), []).append(offer)
            if kinds:
                kind = data.draw(st.sampled_from(list(kinds)))
                walks.play(self.game, data.draw(st.sampled_from(kinds[kind])))

        def teardown(self) -> None:
            """The sequence ends; one that was left by an exception is not gone on with."""
            if sys.exc_info()[1] is self.outside:
                walks.finish(self.game)

    return Sequence


def _name(shop: Workshop) -> str:
    target = f"{shop.cls.__module__}:{shop.cls.__qualname__}"
    return hashlib.sha256(repr((target, shop.scope)).encode()).hexdigest()[:16]
