"""The monitor sees what the explorer sees, though it knows only what passes through the calls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.adapters.vllm.test_stock_scheduler import (
    DEEP_LINKED,
    DEFECTS,
    ENCODER,
    HEALTHY,
    LINKED,
    PLAIN,
    add,
    shop,
)

from vllm_lifecycle.adapters.vllm import Abort, Answer, Event, Match, Report, Schedule, Scope
from vllm_lifecycle.adapters.vllm.driver import Driver, EngineDied
from vllm_lifecycle.adapters.vllm.monitor import Monitor, NotFresh

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

FORESIGHT = {"something_that_fits_is_eventually_scheduled", "enc_used_stays_in_range"}
"""What only an exploration judges."""
BY_CALLS = [n for n, (scope, _, claim) in DEFECTS.items() if claim not in FORESIGHT and scope is not ENCODER]


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
            driver.apply(event)
    except (Fell, EngineDied):
        return monitor.failure
    assert not monitor.failure
    return ""


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_reported_on(name: str) -> None:
    assert told(*HEALTHY[name]) == ""


@pytest.mark.parametrize("name", BY_CALLS)
def test_is_caught(name: str) -> None:
    scope, events, claim = DEFECTS[name]
    assert told(scope, events).splitlines()[0] == claim


def test_the_sequence_begins_where_the_scheduler_was_last_empty() -> None:
    whole_life = (add("r9", family=1), *(Schedule(), Answer()) * 3)
    _, events, _ = DEFECTS["two transfers, the first report frees all"]
    text = told(LINKED, (*whole_life, *events))
    assert "r9" not in text
    assert "1 add_request(r0): prompt 6, max_tokens 2" in text
    assert "in flight: receive r0 [" in text


def test_a_breach_is_marked_in_the_sequence() -> None:
    scope, events, _ = DEFECTS["a report for an unknown request"]
    assert "<- breaks the contract: connector: a report belongs to a transfer" in told(scope, events)


def test_a_known_fall_is_passed_over() -> None:
    scope, events, claim = DEFECTS["loads beyond the slots"]
    assert told(scope, events, accept=(claim,)) == ""


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
    scope, events, _ = DEFECTS["loads beyond the slots"]
    driver, monitor = watched(scope)
    for event in events[:-1]:
        driver.apply(event)
    for _ in range(2):
        with pytest.raises(Fell, match="running_and_loading_requests_fit_the_slots"):
            driver.apply(Schedule())
    monitor.stop()
    driver.apply(Abort("r0"))


def test_a_scheduler_with_requests_is_not_watched() -> None:
    driver = Driver(shop(PLAIN))
    driver.apply(add())
    with pytest.raises(NotFresh, match="before its first add_request"):
        Monitor(driver.scheduler, fall)
