"""Playing a saved finding again: does the property fall here too?

The whole sequence is played and judged; the verdict is about the saved property alone, other properties that fall on the way
are told.  A property that did not fall is not established when its sequence was not played as it was found: an event was
impossible where it stands (this release never came to that point, or has no such feature) and was left out, or the engine died
of something else before its end.  After another property fell the books are wrong, and how things would go on fairly says
nothing; what happens then matters only to a property that is about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vllm_lifecycle.adapters.report.custody import Moment, Picture
from vllm_lifecycle.spec.check.verdict import Outcome

from . import custody
from .config import Unusable, Workshop
from .contract import IMPOSSIBLE, judge
from .driver import PATIENCE, Driver, Endless, patience
from .events import Event, describe
from .play import Failure, Game
from .report import StepLine, changes
from .saved import Saved
from .verdicts import LEAK, STUCK, SURVIVAL, SURVIVES, SURVIVES_EVENT

FORESIGHT = frozenset({STUCK, LEAK})
"""Properties that are judged by going on fairly after the sequence."""
SURVIVING = frozenset({*SURVIVAL, SURVIVES, SURVIVES_EVENT})
"""Properties that fall when the engine dies, each for another reason."""


@dataclass(frozen=True)
class Replay:
    """What a sequence did on the installed release."""

    saved: Saved
    version: str
    outcome: Outcome
    steps: tuple[StepLine, ...]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]
    picture: Picture
    """Who held which block after each call."""

    @property
    def holds(self) -> bool:
        """The property held on the whole sequence."""
        return self.outcome is Outcome.HOLDS

    @property
    def fell(self) -> bool:
        """The property fell."""
        return self.outcome is Outcome.REFUTED

    @property
    def reason(self) -> str:
        """One line: how it fell, or why that is open."""
        told = {f.claim: _how(f) for f in reversed(self.failures)}
        if self.saved.claim in told:
            return told[self.saved.claim]
        others = [f"{claim} falls: {how}" for claim, how in told.items()]
        if self.left_out:
            others.insert(0, f"impossible here and left out: {'; '.join(self.left_out)}")
        return "; ".join(others)

    def text(self) -> str:
        """The sequence and the verdict, for people."""
        lines = [f"{self.saved.claim}: {self.outcome.value} for {self.saved.target} on vLLM {self.version}"]
        if self.reason:
            lines.append(f"  {self.reason}")
        for number, step in enumerate(self.steps, 1):
            lines += step.lines(number)
        return "\n".join(lines)


def _how(failure: Failure) -> str:
    at = f" at {failure.site}" if failure.site and failure.site not in failure.message else ""
    end = "; then everybody but the scheduler goes on fairly" if failure.after == "fairness" else ""
    return f"{failure.message}{at}{end}"


def rerun(saved: Saved) -> Replay:
    """Play a saved finding on the installed release.

    Raises config.Unusable or correspondence.MissingSeam, one line each, when the target cannot be played here.
    """
    shop = Workshop(saved.target, saved.scope)
    game = Game(Driver(shop), shop.judge)
    failures: list[Failure] = []
    steps: list[StepLine] = []
    left_out: list[str] = []
    moments: list[Moment] = []
    with _within_patience():
        dead = not all(_play(game, event, failures, steps, left_out, moments) for event in saved.events)
        noise = any(f.final for f in failures)
        later = None if noise else game.outlook(set())
    failures += [later] if later else []
    died_later = later is not None and bool(later.site)
    died = dead or died_later
    fell = any(f.claim == saved.claim for f in failures) or (died and saved.claim in SURVIVING)
    unseen = bool(left_out) or dead or ((noise or died_later) and saved.claim in FORESIGHT)
    open_or_holds = Outcome.NOT_ESTABLISHED if unseen else Outcome.HOLDS
    outcome = Outcome.REFUTED if fell else open_or_holds
    subjects = [custody.subjects(f.subject) for f in failures if f.claim == saved.claim]
    picture = Picture(tuple(moments), frozenset().union(*subjects), falls=fell)
    return Replay(saved, shop.version, outcome, tuple(steps), tuple(failures), tuple(left_out), picture)


@contextmanager
def _within_patience() -> Iterator[None]:
    """A call without end is a death and shows in `Game.play`; what is left is a machine too slow to judge."""
    try:
        with patience(PATIENCE):
            yield
    except Endless:
        raise Unusable(f"playing and judging the sequence took more than {PATIENCE:g} s: try again") from None


def _play(
    game: Game,
    event: Event,
    failures: list[Failure],
    steps: list[StepLine],
    left_out: list[str],
    moments: list[Moment],
) -> bool:
    """Play one event and write it down; False when the engine died of it."""
    if judge(game.driver, event) == IMPOSSIBLE:
        left_out.append(describe(event))
        return True
    before, known = game.driver.snapshot(), len(game.breaches)
    found = game.play(event)
    failures += found
    death = next((f for f in found if f.site), None)
    breach = game.breaches[-1][1] if len(game.breaches) > known else ""
    changed = [f"the engine dies: {death.message}"] if death else changes(before, game.driver.snapshot())
    steps.append(StepLine(describe(event), breach, tuple(changed)))
    seen = None if death else custody.frame(game.driver)
    moments.append(Moment(steps[-1].call, steps[-1].changes, seen, breach))
    return death is None
