"""Ctrl-C ends an exploration of any kind with what it has found, also when something swallows it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from vllm_lifecycle.adapters.vllm import explore as explorer
from vllm_lifecycle.adapters.vllm.config import STOCK, Workshop
from vllm_lifecycle.adapters.vllm.events import Event
from vllm_lifecycle.adapters.vllm.explore import explore
from vllm_lifecycle.adapters.vllm.interruption import Interruption
from vllm_lifecycle.adapters.vllm.play import Failure, Game
from vllm_lifecycle.adapters.vllm.report import Finding
from vllm_lifecycle.adapters.vllm.scope import Match, Scope

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

HEALTHY = Scope("queueing at large", requests=3, adds=6, blocks=12, resets=True, events=30)
LOADED = Scope("one load", requests=1, adds=1, connector=True, matches=(Match("all"),), level="hostile")
SECONDS = 60.0


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Pressing:
    """Plays games, and presses Ctrl-C at one of their events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, swallowed: bool) -> None:
        self.events, self.at, self.swallowed = 0, at, swallowed
        self.played = Game.play
        monkeypatch.setattr(Game, "play", lambda game, event: self.play(game, event))

    def play(self, game: Game, event: Event) -> list[Failure]:
        """One event."""
        self.events += 1
        if self.events == self.at:
            with suppress(*[KeyboardInterrupt] * self.swallowed):
                press()
        return self.played(game, event)


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("breadth", [4, 0])
def test_ctrl_c_ends_the_search_and_its_walks(
    monkeypatch: pytest.MonkeyPatch, breadth: int, swallowed: bool
) -> None:
    pressing = Pressing(monkeypatch, at=7, swallowed=swallowed)
    scope = Scope("little breadth", requests=3, adds=6, events=breadth, resets=True)
    found = explore(STOCK, (scope, HEALTHY), seconds=SECONDS)
    coverage, other = found.coverage
    assert coverage.cut_by == explorer.INTERRUPTED and not coverage.complete
    assert coverage.seconds < SECONDS / 2
    assert other.cut_by == f"not searched: {explorer.INTERRUPTED}"
    assert pressing.events == 7
    assert coverage.transitions == (7 if breadth else 0)
    assert coverage.walk_events == (0 if breadth else 7)


def test_ctrl_c_while_a_finding_is_made_small_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explorer.conclude
    pressed: list[str] = []

    def concluding(shop: Workshop, target: str, failure: Failure, until: float) -> Finding:
        if not pressed:
            pressed.append(failure.claim)
            press()
        return told(shop, target, failure, until)

    monkeypatch.setattr(explorer, "conclude", concluding)
    found = explore(STOCK, (LOADED, HEALTHY), seconds=SECONDS, walks=3)
    assert pressed and pressed[0] in [finding.claim for finding in found.findings]
    assert [c.cut_by for c in found.coverage] == [
        explorer.INTERRUPTED,
        f"not searched: {explorer.INTERRUPTED}",
    ]


def test_the_handler_of_before_is_asked_and_comes_back() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with Interruption() as interruption:
            interruption.stop()
            press()
            with pytest.raises(KeyboardInterrupt):
                interruption.stop()
        assert heard == [signal.SIGINT]
        press()
        assert heard == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)
