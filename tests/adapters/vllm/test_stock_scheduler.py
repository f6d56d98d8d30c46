"""The stock scheduler of the installed vLLM: silent where it is healthy, caught where it is not, searched reproducibly."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from vllm_lifecycle.adapters.vllm.config import STOCK, Unusable, Workshop
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import (
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
from vllm_lifecycle.adapters.vllm.explore import conclude, explore
from vllm_lifecycle.adapters.vllm.play import Game, play_all
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.scope import Match, Scope
from vllm_lifecycle.adapters.vllm.search import Search

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

S, A = Schedule(), Answer()
BLOCK, MOST, ALL = Match("block", True), Match("most", True), Match("all", True)
PLAIN = Scope("plain", adds=9, requests=3)
DEEP = Scope("deep", adds=9, depth=2)
LINKED = Scope("linked", adds=9, connector=True)
RETRYING = Scope("retrying", adds=9, connector=True, load_failures="recompute")
DEEP_LINKED = Scope("deep and linked", adds=9, connector=True, depth=2)
TALK = Scope("talk", adds=9, sessions=True)
ONE_SLOT = Scope("one slot", adds=9, sessions=True, slots=1)
TIGHT = Scope("tight", adds=9, requests=3, blocks=4, slots=3)
TWO_GROUPS = Scope("two groups", adds=9, connector=True, groups=2)
IMAGES = Scope("images", adds=9, encoder="decoder-only")
ENCODER = Scope("encoder", adds=9, encoder="encoder-decoder")
DRAFTS = Scope("drafts", adds=9, drafts=2)
GUESSING = Scope("guessing", adds=9, blocks=4, drafts=2, look_ahead=True)
CLASSES = Scope("classes", adds=9, requests=3, slots=3, blocks=6, policy="priority")


ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"


@cache
def shop(scope: Scope, target: str = STOCK) -> Workshop:
    return Workshop(target, scope)


def add(rid: str = "r0", prompt: int = 6, answer: int = 2, **more: Any) -> Add:
    return Add(rid, prompt, answer, **more)


HEALTHY: dict[str, tuple[Scope, tuple[Event, ...]]] = {
    "a preemption while output is in flight": (
        GUESSING,
        (Add("r0", 8, 2, family=1), Add("r1", 8, 2, family=2), S, S),
    ),
    "a request lives and ends": (PLAIN, (add(), S, A, S, A)),
    "two requests share a prefix in the step that computes it": (PLAIN, (add(), add("r1"), S, A, S, A)),
    "a free block keeps its content and is hit again": (PLAIN, (add(), S, A, Abort("r0"), add("r1"), S, A)),
    "an id is used again after its owner is gone": (PLAIN, (add(), S, A, S, A, S, A, add(), S, A)),
    "stream order protects the blocks of an aborted request": (
        DEEP,
        (add(), S, Abort("r0"), add("r1"), S, A, A),
    ),
    "a stop while the next step is out": (DEEP, (add(prompt=8, answer=4), S, S, Answer(stop="r0"), A)),
    "a deferred free of a request that a connector could refill": (
        DEEP_LINKED,
        (add(), S, Abort("r0"), add("r1"), S, A, A),
    ),
    "the connector hears of a request that never had blocks": (LINKED, (add(hold=True), Abort("r0"))),
    "a load, and its request runs": (LINKED, (add(match=BLOCK), S, Report("received", "r0"), A, S, A)),
    "a load of the whole prompt between steps": (
        LINKED,
        (add(match=ALL), S, Report("received", "r0"), A, S, A),
    ),
    "a send after the end": (LINKED, (add(hold=True), S, Answer(stop="r0"), S, Report("sent", "r0"), A)),
    "an abort of a held request changes nothing": (
        LINKED,
        (add(hold=True), S, Answer(stop="r0"), Abort("r0"), S, Report("sent", "r0"), A),
    ),
    "an abort during a load waits for it": (
        LINKED,
        (add(match=BLOCK), S, Abort("r0"), Report("received", "r0"), A),
    ),
    "a failed load is computed": (RETRYING, (add(match=BLOCK), S, Report("receive failed", "r0"), A, S, A)),
    "a failed block is computed": (RETRYING, (add(match=MOST), S, Report("block failed", "r0"), A, S, A)),
    "a failed load fails its request": (LINKED, (add(match=BLOCK), S, Report("receive failed", "r0"), A)),
    "a match put off": (LINKED, (add(match=Match("unknown")), S, A, Decide("r0", BLOCK), S)),
    "a session of two turns": (
        TALK,
        (add(session=True), S, A, S, A, Continue("r0"), S, A, S, A, Close("r0")),
    ),
    "an idle session with room beside it": (TALK, (add(session=True), S, A, S, A, add("r1"), S, A)),
    "a preemption under pressure": (
        TIGHT,
        (add(prompt=8, family=1), add("r1", 8, family=2), S, A, S, A, S, A),
    ),
    "a grammar gets ready": (
        Scope("g", adds=9, grammar=True),
        (add(grammar=True), S, Grammar("r0", True), A, S, A),
    ),
    "a grammar fails": (Scope("g", adds=9, grammar=True), (add(grammar=True), Grammar("r0", False), S, A)),
    "a pause and a resume": (PLAIN, (add(), S, A, Pause(True), Resume(), S, A)),
    "new requests are kept out, running ones drain": (
        PLAIN,
        (add(), S, A, Pause(False), add("r1"), S, A, Resume()),
    ),
    "a plain reset with requests running": (PLAIN, (add(), S, A, Reset(False), S, A)),
    "a forced reset": (PLAIN, (add(), S, A, Reset(True), S, A)),
    "drafts accepted and rejected": (
        DRAFTS,
        (add(answer=9), S, A, S, A, S, Answer(accepted=0), S, Answer(accepted=1)),
    ),
    "an image": (IMAGES, (add(prompt=9, images=1), add("r1", 9, family=2, images=1), S, A, S, A)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_reported_on(name: str) -> None:
    scope, events = HEALTHY[name]
    assert play_all(shop(scope), events) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_reported_on_the_asynchronous_scheduler_for(name: str) -> None:
    scope, events = HEALTHY[name]
    assert play_all(shop(scope, ASYNC), events) == []


ASKED: dict[str, tuple[Scope, tuple[Event, ...], str]] = {
    "a lower class keeps its slot": (
        Scope("order", adds=9, slots=1, policy="priority", policy_properties=True),
        (add(answer=9, priority=1), S, A, add("r1"), S),
        "a_request_of_a_higher_class_runs_before_a_lower_one",
    ),
    "a small request waits behind a large one": (
        Scope("head", adds=9, requests=3, slots=3, blocks=5, policy_properties=True),
        (add(prompt=10, answer=2, family=1), S, A, add("r1", 12, family=2), add("r2", 3, family=3), S),
        "a_waiting_request_that_fits_is_not_held_up",
    ),
    "the connector hears of a request without blocks": (
        Scope("hooks", adds=9, connector=True, policy_properties=True),
        (add(), Abort("r0")),
        "the_connector_hears_only_of_requests_that_had_blocks",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_design_question_is_raised_only_when_asked(name: str) -> None:
    scope, events, claim = ASKED[name]
    assert [f.claim for f in play_all(shop(scope), events)] == [claim]
    assert play_all(shop(replace(scope, policy_properties=False)), events) == []


DEFECTS: dict[str, tuple[Scope, tuple[Event, ...], str]] = {
    "two transfers, the first report frees all": (
        LINKED,
        (add(match=BLOCK, hold=True), S, Abort("r0"), Report("received", "r0"), A),
        "a_free_block_is_not_touched_by_a_transfer",
    ),
    "a report for an unknown request": (
        LINKED,
        (add(), S, Report("sent", GHOST), A),
        "the_engine_survives_every_breach",
    ),
    "a send reported before the end": (
        LINKED,
        (add(), S, Report("sent", "r0"), A),
        "the_engine_survives_every_breach",
    ),
    "a match of everything": (LINKED, (add(match=Match("all")), S), "the_engine_survives_every_breach"),
    "a block failure with two groups": (
        TWO_GROUPS,
        (add(match=BLOCK), S, Report("block failed", "r0"), A),
        "the_engine_survives_every_breach",
    ),
    "loads beyond the slots": (
        Scope("loads", adds=9, requests=3, connector=True),
        (add(match=BLOCK), add("r1", match=BLOCK), add("r2", match=BLOCK), S),
        "running_and_loading_requests_fit_the_slots",
    ),
    "a forced reset during a load": (
        LINKED,
        (add(match=BLOCK), S, A, Reset(True)),
        "the_engine_survives_every_mishap",
    ),
    "a duplicate id": (PLAIN, (add(), add()), "the_engine_survives_every_breach"),
    "a request larger than the pool": (TIGHT, (add(prompt=30), add("r1")), "a_request_can_fit_an_empty_pool"),
    "the pass that ends with a preemption": (
        CLASSES,
        (
            add(prompt=7, answer=4, family=1, priority=1),
            S,
            A,
            add("r1", 7, 4, family=2),
            add("r2", 7, 4, family=3),
            S,
            A,
            S,
        ),
        "a_pass_goes_on_after_a_preemption",
    ),
    "an answer without a scheduled id": (
        PLAIN,
        (add(), S, Answer(omit="r0")),
        "the_engine_survives_every_breach",
    ),
    "an idle session holds the only slot": (
        ONE_SLOT,
        (add(session=True), S, A, S, A, add("r1")),
        "something_that_fits_is_eventually_scheduled",
    ),
    "an answer without a token": (
        PLAIN,
        (add(), S, Answer(empty="r0")),
        "a_running_request_with_nothing_in_flight_has_a_token_to_compute",
    ),
    "encoder slots grow": (ENCODER, (add(prompt=5, images=1), Abort("r0")), "enc_used_stays_in_range"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_is_caught(name: str) -> None:
    scope, events, claim = DEFECTS[name]
    assert claim in [failure.claim for failure in play_all(shop(scope), events)]


def test_a_failure_is_made_small_and_its_line_is_named() -> None:
    scope, events, claim = DEFECTS["two transfers, the first report frees all"]
    longer = (add("r1"), S, A, S, A, *events)
    failure = next(f for f in play_all(shop(scope), longer) if f.claim == claim)
    finding = conclude(shop(scope), STOCK, failure)
    assert len(finding.events) <= 5
    assert (finding.fault, finding.breach) == ("scheduler", "")
    assert "scheduler.py:" in finding.site
    assert "free list" in finding.text()


def test_a_breach_is_blamed_on_its_sender() -> None:
    scope, events, _ = DEFECTS["a report for an unknown request"]
    finding = conclude(shop(scope), STOCK, play_all(shop(scope), events)[0])
    assert (finding.fault, bool(finding.breach)) == ("connector", True)


def test_a_small_scope_is_exhausted_and_counts_the_same_again() -> None:
    alone = next(s for s in PORTFOLIO if s.name == "alone")
    runs = [Search(shop(alone), 0).run(60.0, exhaustive_part=1.0) for _ in range(2)]
    first, second = (r.coverage for r in runs)
    assert first.complete
    assert not runs[0].failures
    assert (first.states, first.transitions, first.depth) == (second.states, second.transitions, second.depth)


@pytest.mark.slow
def test_the_search_finds_defects_by_itself() -> None:
    result = explore(
        STOCK, [s for s in PORTFOLIO if s.name in ("loads", "sessions", "careless connector")], 0, 25.0
    )
    assert len({f.site for f in result.findings}) >= 6
    assert any(f.fault == "scheduler" for f in result.findings)


def _module_with(body: str) -> str:
    module = types.ModuleType("explored_here")
    exec(f"from vllm.v1.core.sched.scheduler import Scheduler\n{body}", module.__dict__)
    sys.modules[module.__name__] = module
    return "explored_here:Mine"


def test_a_class_that_does_not_build_is_one_line() -> None:
    target = _module_with(
        "class Mine(Scheduler):\n    def __init__(self, *a, **k):\n        raise ValueError('not today')\n"
    )
    with pytest.raises(Unusable, match=r"Mine\.__init__ raised ValueError: not today"):
        explore(target, PORTFOLIO[:1], 0, 1.0)


def test_an_endless_pass_is_a_death_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_lifecycle.adapters.vllm.play.PATIENCE", 0.3)
    target = _module_with(
        "class Mine(Scheduler):\n    def schedule(self, *a, **k):\n        while True:\n            pass\n"
    )
    failures = play_all(Workshop(target, PLAIN), (add(), S))
    assert [f.message.split(" at ")[0] for f in failures] == ["the call does not return (waited 0.3 s)"]
    assert failures[0].site.endswith(" schedule")


def test_an_answer_is_told_by_what_it_carries() -> None:
    workshop = shop(LINKED)
    game = Game(Driver(workshop), workshop.judge)
    for event in (add(match=BLOCK), S):
        assert game.occasion(event) == type(event).__name__
        game.play(event)
    assert game.occasion(A) == "Answer"
    game.play(Report("received", "r0"))
    assert game.occasion(A) == "Answer with received"
