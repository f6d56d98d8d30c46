"""Saved findings played again: they fall where they were found, hold where nothing is wrong, and say what was left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.vllm.test_stock_scheduler import DEFECTS, LINKED, PLAIN, add, shop

from vllm_lifecycle.adapters.vllm import Abort, Answer, Match, Pause, Report, Schedule, as_test, saved
from vllm_lifecycle.adapters.vllm.config import STOCK, Unusable
from vllm_lifecycle.adapters.vllm.explore import conclude
from vllm_lifecycle.adapters.vllm.play import play_all
from vllm_lifecycle.adapters.vllm.report import Finding
from vllm_lifecycle.adapters.vllm.rerun import rerun
from vllm_lifecycle.adapters.vllm.saving import save
from vllm_lifecycle.spec.check.verdict import Outcome

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def concluded(name: str) -> Finding:
    scope, events, claim = DEFECTS[name]
    failure = next(f for f in play_all(shop(scope), events) if f.claim == claim)
    return conclude(shop(scope), STOCK, failure)


@pytest.mark.parametrize("name", DEFECTS)
def test_what_was_saved_falls_again(name: str) -> None:
    finding = concluded(name)
    again = rerun(saved.load(saved.dump(finding)))
    assert again.outcome is Outcome.REFUTED
    assert finding.claim in {f.claim for f in again.failures}
    assert again.left_out == ()
    assert [s.call for s in again.steps] == [s.call for s in finding.steps]
    assert again.reason


def test_a_saved_test_fails_with_the_sequence_and_no_traceback(tmp_path: Path) -> None:
    finding = concluded("two transfers, the first report frees all")
    [place] = [p for p in save([finding], tmp_path) if p.suffix == ".py"]
    space: dict[str, object] = {}
    exec(compile(place.read_text(), place.name, "exec"), space)
    [test] = [value for name, value in space.items() if name.startswith("test_")]
    with pytest.raises(pytest.fail.Exception) as failed:
        test()  # type: ignore[operator]
    assert failed.value.pytrace is False
    assert str(failed.value).startswith(f"{finding.claim}: refuted for {STOCK} on vLLM ")
    for step in finding.steps:
        assert step.call in str(failed.value)


def test_a_saved_test_passes_where_the_property_holds(tmp_path: Path) -> None:
    finding = concluded("two transfers, the first report frees all")
    healthy = replace(
        finding, events=(add(match=Match("block", True)), Schedule(), Report("received", "r0"), Answer())
    )
    space: dict[str, object] = {}
    exec(compile(as_test.test_text(healthy, "healthy"), "saved", "exec"), space)
    space["test_healthy"]()  # type: ignore[operator]


def test_a_sequence_that_cannot_be_played_is_not_established() -> None:
    one = saved.Saved("a_free_block_is_in_no_table", STOCK, PLAIN, (add(), Report("sent", "r0"), Schedule()))
    again = rerun(one)
    assert again.outcome is Outcome.NOT_ESTABLISHED
    assert again.reason == "impossible here and left out: connector worker reports: sent r0"


def test_another_death_on_the_way_leaves_it_open_and_is_told() -> None:
    scope, events, _ = DEFECTS["a duplicate id"]
    again = rerun(saved.Saved("a_free_block_is_in_no_table", STOCK, scope, events))
    assert again.outcome is Outcome.NOT_ESTABLISHED
    assert again.reason.startswith(
        "the_engine_survives_every_breach falls: AssertionError: duplicate request id at vllm/"
    )


def test_what_falls_beside_the_saved_property_is_told() -> None:
    scope, events, claim = DEFECTS["two transfers, the first report frees all"]
    again = rerun(saved.Saved("a_free_block_is_in_no_table", STOCK, scope, events))
    assert again.outcome is Outcome.HOLDS
    assert f"{claim} falls" in again.reason


def test_a_target_that_is_gone_is_one_line() -> None:
    with pytest.raises(Unusable, match=r"cannot import no\.longer\.there"):
        rerun(saved.Saved("c", "no.longer.there:Class", LINKED, (add(), Pause(True), Abort("r0"))))
