"""The monitor sees what the explorer sees, though it knows only what passes through the calls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.adapters.vllm.test_stock_scheduler import (
    DEEP_LINKED,
    DEFECTS,
    HEALTHY,
    PLAIN,
    add,
    shop,
)

from vllm_lifecycle.adapters.vllm import Answer, Event, Match, Report, Schedule, Scope
from vllm_lifecycle.adapters.vllm.contract import IMPOSSIBLE, judge
from vllm_lifecycle.adapters.vllm.driver import Driver, EngineDied
from vllm_lifecycle.adapters.vllm.monitor import Monitor, NotFresh
from vllm_lifecycle.adapters.vllm.play import Game

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

SEQUENCES = {
    name: (scope, events) for name, (scope, events, _) in DEFECTS.items() if not scope.encoder
} | HEALTHY


class Fell(BaseException):
    """What the monitor of these tests fails with."""


def fall(text: str) -> None:
    raise Fell(text)


def watched(scope: Scope, **more: Any) -> tuple[Driver, Monitor]:
    driver = Driver(shop(scope))
    return driver, Monitor(driver.scheduler, fall, **more)


def told(scope: Scope, events: tuple[Event, ...], **more: Any) -> str:
    """What the monitor says of a sequence that a driver plays on the watched scheduler; empty when nothing."""
    driver, monitor = watched(scope, **more)
    try:
        for event in events:
            if judge(driver, event) != IMPOSSIBLE:
                driver.apply(event)
    except (Fell, EngineDied):
        return monitor.failure
    assert not monitor.failure
    return ""


def explored(scope: Scope, events: tuple[Event, ...]) -> list[str]:
    """What the explorer says of the same sequence, as long as the scheduler lives."""
    game, claims = Game(Driver(shop(scope)), shop(scope).judge), list[str]()
    for event in events:
        if judge(game.driver, event) != IMPOSSIBLE:
            failures = game.play(event)
            claims += [f.claim for f in failures if not f.claim.startswith("enc_")]
            if any(f.site for f in failures):
                break
    return claims


@pytest.mark.parametrize("name", SEQUENCES)
def test_it_says_what_the_explorer_says_of(name: str) -> None:
    assert told(*SEQUENCES[name]).splitlines()[:1] == explored(*SEQUENCES[name])[:1]


def test_both_have_something_to_say() -> None:
    fallen = [name for name, sequence in SEQUENCES.items() if explored(*sequence)]
    assert 5 < len(fallen) < len(SEQUENCES) - 5


def test_the_sequence_begins_where_the_scheduler_was_last_empty() -> None:
    whole_life = (add("r9", family=1), *(Schedule(), Answer()) * 3)
    scope, events, _ = DEFECTS["a report for an unknown request"]
    text = told(scope, (*whole_life, *events))
    assert "r9" not in text
    assert "1 add_request(r0): prompt 6, max_tokens 2" in text
    assert "in flight: step r0 [" in text


def test_a_breach_is_marked_in_the_sequence() -> None:
    scope, events, _ = DEFECTS["a report for an unknown request"]
    assert "<- breaks the contract: connector: a report belongs to a transfer" in told(scope, events)


def test_a_known_fall_is_passed_over() -> None:
    scope, events, _ = DEFECTS["loads beyond the slots"]
    assert told(scope, events, accept=explored(scope, events)) == ""


def test_calls_that_a_scheduler_makes_to_itself_are_left_alone() -> None:
    driver, monitor = watched(DEEP_LINKED)
    driver.apply(add(match=Match("block", True)))
    inner = driver.scheduler.schedule

    def schedule() -> Any:
        driver.scheduler.reset_prefix_cache()
        return inner()

    driver.scheduler.schedule = schedule
    driver.apply(Schedule())
    driver.apply(Report("received", "r0"))
    driver.apply(Answer())
    assert not monitor.failure


def test_after_a_fall_every_further_call_says_it_again() -> None:
    scope, events, _ = DEFECTS["a report for an unknown request"]
    driver, monitor = watched(scope)
    with pytest.raises(Fell):
        for event in events:
            driver.apply(event)
    with pytest.raises(Fell, match="the_engine_survives_every_breach"):
        driver.apply(Schedule())
    monitor.stop()
    driver.apply(Schedule())


def test_a_scheduler_with_requests_is_not_watched() -> None:
    driver = Driver(shop(PLAIN))
    driver.apply(add())
    with pytest.raises(NotFresh, match="before its first add_request"):
        Monitor(driver.scheduler, fall)
