"""vllm-omni's AR scheduler: hypotheses that were checked and refuted stay silent, and its defects are caught."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("vllm_omni")

from vllm_lifecycle.adapters.vllm.config import Workshop
from vllm_lifecycle.adapters.vllm.events import (
    GHOST,
    Abort,
    Acknowledge,
    Add,
    Answer,
    Chunk,
    Event,
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
    "the sentinel": (TOKEN, (add(answer=3), S, Answer(sentinel="r0"), S, Acknowledge("r0"), A, S, A)),
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
