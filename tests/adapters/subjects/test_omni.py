"""vllm-omni's AR scheduler: hypotheses that were checked and refuted stay silent, and its defects are caught."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("vllm_omni")

from vllm_lifecycle.adapters.vllm.config import Workshop
from vllm_lifecycle.adapters.vllm.contract import LEGAL, judge
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import (
    GHOST,
    Abort,
    Acknowledge,
    Add,
    Answer,
    Chunk,
    Event,
    Refuse,
    Report,
    Reset,
    Schedule,
)
from vllm_lifecycle.adapters.vllm.play import play_all
from vllm_lifecycle.adapters.vllm.scope import Match, Scope

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OMNI = "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler"
S, A = Schedule(), Answer()
BLOCK = Match("block", True)
PROMPT = Scope("prompt", requests=3, adds=9, handoff="prefill_finished")
LATE = Scope("late", requests=3, adds=9, handoff="prefill_finished", late_acknowledgements=True)
LATE_END = Scope("late, at the end", requests=3, adds=9, handoff="end", late_acknowledgements=True)
TOKEN = Scope("token", adds=9, handoff="special_token", late_acknowledgements=True)
END = Scope("end", requests=3, adds=9, handoff="end")
LINKED = Scope("linked", requests=3, adds=9, handoff="end", late_acknowledgements=True, connector=True)
DEEP = Scope("deep", adds=9, depth=2, handoff="prefill_finished", blocks=5)
CHUNKS = Scope("chunks", requests=3, adds=9, chunks=True)
ONE_SLOT = Scope("one slot", requests=2, adds=9, chunks=True, slots=1)
REFUSING = Scope("refusing", adds=9, chunks=True, refusals=True)
TIGHT = Scope("tight", adds=9, chunks=True, blocks=4)
CHUNKS_LINKED = Scope("chunks, linked", adds=9, chunks=True, connector=True)


@cache
def shop(scope: Scope) -> Workshop:
    return Workshop(OMNI, scope)


def add(rid: str = "r0", prompt: int = 6, answer: int = 2, **more: Any) -> Add:
    return Add(rid, prompt, answer, **more)


BUSY = add("r9", answer=9, family=9)

HEALTHY: dict[str, tuple[Scope, tuple[Event, ...]]] = {
    "an acknowledgement twice, and one for nobody": (
        LATE,
        (add(answer=4), S, A, S, Acknowledge("r0"), A, S, Acknowledge("r0"), Acknowledge(GHOST), A),
    ),
    "acknowledged before the end": (LATE, (add(answer=4), S, A, S, Acknowledge("r0"), A, S, A, S, A)),
    "stop and acknowledgement in one update": (LATE, (add(), S, A, S, Acknowledge("r0"), A)),
    "a second abort while held": (
        LATE,
        (add(answer=4), S, A, S, A, Abort("r0"), Abort("r0"), S, Acknowledge("r0"), A),
    ),
    "a hand-off at the end": (LATE_END, (BUSY, add(answer=1), S, A, S, Acknowledge("r0"), A)),
    "a hand-off beside a busy request is acknowledged with the step": (
        PROMPT,
        (add("r1", answer=9, family=1), S, A, S, A, add(answer=9), S, A, S, A),
    ),
    "a chunk before it is asked for": (CHUNKS, (add(), Chunk("r0", True), S, A, S, A, S, A)),
    "chunks one by one": (
        CHUNKS,
        (add(answer=3), S, A, Chunk("r0"), S, A, S, A, Chunk("r0", True), S, A),
    ),
    "a chunk and then a load": (
        CHUNKS_LINKED,
        (add(match=BLOCK), S, A, Chunk("r0", True), S, A, S, Report("received", "r0"), A, S, A),
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_reported_on(name: str) -> None:
    scope, events = HEALTHY[name]
    assert play_all(shop(scope), events) == []


TOUCHED = "a_free_block_is_not_touched_by_a_transfer"
DEFECTS: dict[str, tuple[Scope, tuple[Event, ...], str]] = {
    "a snapshot at a token ends before it": (
        TOKEN,
        (add(answer=3), S, Answer(sentinel="r0"), S, Acknowledge("r0"), A, S, A),
        "a_snapshot_at_a_token_holds_that_token",
    ),
    "a chunk that the transport refused": (
        REFUSING,
        (add(answer=3), Chunk("r0", True), S, A, Refuse(), S, A),
        "a_chunk_that_is_not_taken_is_sent_again",
    ),
    "an acknowledgement is lost with a step without tokens": (
        END,
        (add(answer=1), S, A, S, A),
        "a_block_that_is_not_free_has_a_holder",
    ),
    "an abort between the mark and the shipment": (PROMPT, (add(), S, A, Abort("r0")), TOUCHED),
    "a preemption while blocks are copied": (DEEP, (add(answer=9), S, A, S, Reset(True)), TOUCHED),
    "an abort before the first pass": (END, (add(), Abort("r0")), "a_handoff_names_some_block"),
    "the once-mark leaks": (
        PROMPT,
        (add(answer=9), S, A, S, A, Abort("r0")),
        "a_trigger_mark_belongs_to_a_live_request",
    ),
    "an id used again while held": (END, (add(answer=1), S, A, add()), "the_engine_never_dies"),
    "an acknowledgement during a load": (
        LINKED,
        (add(match=BLOCK), BUSY, S, Abort("r0"), A, S, Acknowledge("r0"), A),
        TOUCHED,
    ),
    "a send reported before the shipment": (
        LINKED,
        (add(answer=1, hold=True), BUSY, S, A, S, Report("sent", "r0"), A),
        TOUCHED,
    ),
    "the connector's parameters are replaced": (
        LINKED,
        (add(answer=1, hold=True), S, A),
        "the_output_carries_the_parameters_of_every_transfer",
    ),
    "an abort of a parked running request": (
        CHUNKS,
        (add(answer=9), S, A, Chunk("r0"), S, A, S, Abort("r0")),
        "a_slot_in_use_has_a_request",
    ),
    "a poll entry outlives its request": (
        CHUNKS,
        (add(), S, Abort("r0")),
        "only_a_live_request_is_polled_for_or_has_a_chunk",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_is_caught(name: str) -> None:
    scope, events, claim = DEFECTS[name]
    assert claim in [failure.claim for failure in play_all(shop(scope), events)]


def test_a_chunk_that_is_taken_is_no_finding() -> None:
    events = (add(answer=3), Chunk("r0", True), S, A, S, A, S, A)
    assert play_all(shop(REFUSING), events) == []


def test_a_trigger_and_a_natural_stop_in_one_update_ship_once() -> None:
    driver = Driver(shop(LATE))
    driver.run((add(answer=1), S, A))
    assert driver.truth.lives["r0"].handoffs == 1
    driver.run((S, Acknowledge("r0"), A, S, A))
    assert driver.truth.lives["r0"].handoffs == 1 and driver.snapshot().free_count == LATE.blocks


def test_blocks_that_an_acknowledgement_freed_are_not_freed_again() -> None:
    driver = Driver(shop(LATE_END))
    driver.run((add(answer=1), S, A, S, Acknowledge("r0"), A))
    before = driver.snapshot()
    assert before.free_count == LATE_END.blocks
    driver.scheduler.kv_cache_manager.free(driver.truth.lives["r0"].request)
    after = driver.snapshot()
    assert (after.free, after.free_count, after.references) == (
        before.free,
        before.free_count,
        before.references,
    )


def test_the_chunk_gate_leaves_a_preempted_request_preempted() -> None:
    driver = Driver(shop(TIGHT))
    driver.run((add("r0", 8, 4), add("r1", 8, 4, family=1)))
    told: dict[str, list[str]] = {"r0": [], "r1": []}
    for turn in range(20):
        for event in (Chunk("r0", turn > 5), Chunk("r1", turn > 5), S, A):
            if judge(driver, event) == LEGAL:
                driver.apply(event)
            for view in driver.snapshot().requests:
                if told[view.rid][-1:] != [view.status]:
                    told[view.rid].append(view.status)
    assert "PREEMPTED" in told["r1"]
    after = told["r1"][told["r1"].index("PREEMPTED") :]
    assert "WAITING" not in after, told
