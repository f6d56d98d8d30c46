"""The known defects of vllm-omni's scheduler, each played on the original and on ours; and what was suspected and is no defect.

Every defect that was shown on the real scheduler (E rows of the corpus) falls on the original at the property named here. On ours
the same sequence, without what cannot happen there, and its fair continuation find nothing. Every refuted suspicion finds nothing
on either.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.adapters.omni_verified.test_handoffs import Bench
from tests.adapters.subjects.test_omni import (
    CHUNKS,
    DEFECTS,
    HEALTHY,
    LATE,
    LATE_END,
    OMNI,
    TIGHT,
    A,
    S,
    add,
)
from tests.differential.grammar import Manager
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler

from vllm_lifecycle.adapters.corpus.omni_rows import OMNI as RELEASE
from vllm_lifecycle.adapters.corpus.omni_rows import ROWS
from vllm_lifecycle.adapters.vllm.config import Workshop
from vllm_lifecycle.adapters.vllm.contract import LEGAL, judge
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import (
    Abort,
    Acknowledge,
    Answer,
    Chunk,
    Close,
    Continue,
    Event,
    Report,
)
from vllm_lifecycle.adapters.vllm.play import play_all
from vllm_lifecycle.adapters.vllm.scope import Match, Scope

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OURS = "vllm_lifecycle.adapters.omni:VerifiedOmniARScheduler"
BOTH = pytest.mark.parametrize("target", [OMNI, OURS], ids=["original", "ours"])
BEYOND = Scope("beyond the slots", requests=2, adds=9, slots=1, blocks=8, chunks=True)
FAILING = Scope(
    "failing", requests=1, adds=9, depth=2, blocks=3, connector=True, load_failures="fail", chunks=True
)
POLLED = "only_a_live_request_is_polled_for_or_has_a_chunk"
Case = tuple[Scope, tuple[Event, ...], str]

PLAYED: dict[str, Case] = {
    "A1": DEFECTS["an acknowledgement is lost with a step without tokens"],
    "A2": DEFECTS["an abort between the mark and the shipment"],
    "A4": DEFECTS["a preemption while blocks are copied"],
    "A5": DEFECTS["an abort before the first pass"],
    "A7": DEFECTS["the once-mark leaks"],
    "A9": DEFECTS["an id used again while held"],
    "A10": DEFECTS["an acknowledgement during a load"],
    "A12": DEFECTS["a send reported before the shipment"],
    "A13": DEFECTS["the connector's parameters are replaced"],
    "A20": DEFECTS["a snapshot at a token ends before it"],
    "A22": DEFECTS["an abort of a parked running request"],
    "A23": (
        BEYOND,
        (
            add(answer=4), add("r1", answer=4), S, A, Chunk("r1"), S, Chunk("r0", True), A, S, Chunk("r1", True), A, S,
        ),
        "a_running_request_is_in_the_running_list",
    ),
    "A26": (CHUNKS, (add(), S, Abort("r0")), POLLED),
    "A28": (
        FAILING,
        (add(match=Match("block")), S, A, Chunk("r0"), S, S, Report("block failed", "r0"), A),
        POLLED,
    ),
    "A30": DEFECTS["a chunk that the transport refused"],
}  # fmt: skip
"""Row -> scope, events, and the property that falls on the original."""

TALK = Scope(
    "talk", requests=2, adds=9, sessions=True, handoff="prefill_finished", late_acknowledgements=True
)
PLAYED_SESSIONS: dict[str, Case] = {
    "the next turn ships again": (
        TALK,
        (add(session=True), Continue("r0"), S, A, S, A, S, A),
        "a_request_is_handed_off_at_most_once",
    ),
    "the end of a turn forgets what is under way": (
        TALK,
        (add(session=True), S, A, S, A),
        "the_engine_is_awake_while_a_transfer_is_outstanding",
    ),
    "a session that is closed while it waits has ended badly, and is shipped": (
        TALK,
        (add(session=True), S, Answer(stop="r0"), Close("r0")),
        "a_request_that_ended_badly_is_not_waiting_to_be_shipped",
    ),
}
"""Beyond the corpus: what sessions do to hand-offs."""


@cache
def shop(target: str, scope: Scope) -> Workshop:
    """Builds schedulers of that class."""
    return Workshop(target, scope)


@pytest.mark.parametrize("row", [*PLAYED, *PLAYED_SESSIONS])
def test_a_known_defect_is_found_on_the_original_and_not_on_ours(row: str) -> None:
    scope, events, claim = (PLAYED | PLAYED_SESSIONS)[row]
    assert claim in {failure.claim for failure in play_all(shop(OMNI, scope), events)}
    assert [failure.claim for failure in play_all(shop(OURS, scope), events)] == []


@pytest.mark.parametrize("cls", [OmniARScheduler, None], ids=["original", "ours"])
def test_a15_an_error_in_the_enrichment_does_not_put_off_what_is_shipped(
    cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench("prefill_finished")
    if cls is not None:
        bench.scheduler = bench.factory.scheduler(cls, Manager())[0]
    bench.add("a", prompt=5)
    bench.step()
    later = bench.add("b", prompt=3)

    def unreadable(request: Any) -> Any:
        if request.request_id == "b":
            raise ValueError("no such payload")

    later.__dict__.pop("additional_information", None)
    monkeypatch.setattr(type(later), "additional_information", property(unreadable), raising=False)
    output = bench.scheduler.schedule()
    shipped = set(output.finished_requests_needing_kv_transfer)
    if cls is not None:
        assert shipped == set() and set(bench.scheduler.requests_needing_kv_transfer) == {"a"}, "A15"
    else:
        assert shipped == {"a"} and not bench.scheduler.requests_needing_kv_transfer


def test_every_defect_that_was_shown_is_played_and_told() -> None:
    shown = {row.name for row in ROWS if row.cells.get(RELEASE) == "misbehaves"}
    assert shown == {*PLAYED, "A15"}
    page = (Path(__file__).parents[3] / "docs" / "vllm-omni.md").read_text()
    assert set(re.findall(r"^\| (A\d+) \|", page, re.MULTILINE)) == shown


# what was suspected and is no defect


@BOTH
@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_on_a_refuted_suspicion(name: str, target: str) -> None:
    scope, events = HEALTHY[name]
    assert [failure.claim for failure in play_all(shop(target, scope), events)] == []


@BOTH
def test_an_acknowledgement_twice_or_for_nobody_frees_nothing_twice(target: str) -> None:
    driver = Driver(shop(target, LATE))
    driver.run((add(answer=9), S, A, S, Acknowledge("r0"), A))
    before = driver.snapshot()
    driver.run((S, Acknowledge("r0"), A))
    after = driver.snapshot()
    assert (after.free_count, after.references) == (before.free_count, before.references)


@BOTH
def test_a_trigger_and_a_natural_stop_in_one_update_ship_once(target: str) -> None:
    driver = Driver(shop(target, LATE))
    driver.run((add(answer=1), S, A))
    assert driver.truth.lives["r0"].handoffs == 1
    driver.run((S, Acknowledge("r0"), A, S, A))
    assert driver.truth.lives["r0"].handoffs == 1 and driver.snapshot().free_count == LATE.blocks


@BOTH
def test_blocks_that_an_acknowledgement_freed_are_not_freed_again(target: str) -> None:
    driver = Driver(shop(target, LATE_END))
    driver.run((add(answer=1), S, A, S, Acknowledge("r0"), A))
    before = driver.snapshot()
    assert before.free_count == LATE_END.blocks
    driver.run((S, Acknowledge("r0"), A) if driver.awake else ())
    driver.run((Abort("r0"),) if judge(driver, Abort("r0")) == LEGAL else ())
    after = driver.snapshot()
    assert (after.free_count, after.references) == (before.free_count, before.references)


@BOTH
def test_the_chunk_gate_leaves_a_preempted_request_preempted(target: str) -> None:
    driver = Driver(shop(target, TIGHT))
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
    assert "WAITING" not in told["r1"][told["r1"].index("PREEMPTED") :], told
