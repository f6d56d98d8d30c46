"""Outputs that the scheduler did not make: taken where they can be true, refused and counted where they cannot."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from tests.adapters.verified.bench import Bench

from vllm_lifecycle.adapters.vllm.verified.base import STEP

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def by_hand(tokens: dict[str, int], drafts: dict[str, list[int]] | None = None) -> Any:
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_spec_decode_tokens=drafts or {},
        num_invalid_spec_tokens=None,
    )


def without_step(output: Any) -> Any:
    made = copy(output)
    delattr(made, STEP)
    return made


def running(bench: Bench, rid: str = "a") -> Any:
    """A request that runs, with nothing in flight and its last token computed."""
    request = bench.add(rid, answer=6)
    bench.turn()
    request.num_computed_tokens = request.num_tokens
    return request


def test_a_step_that_was_never_planned_is_credited_when_its_requests_can_have_run() -> None:
    bench = Bench()
    request = running(bench)
    heard = bench.answer(by_hand({"a": 1}), {"a": [9]})
    assert [o.new_token_ids for o in heard] == [[9]]
    assert list(request.output_token_ids) == [7, 9]
    assert bench.broken("WORKER") == 0


def test_drafts_that_were_wrong_are_taken_back() -> None:
    bench = Bench()
    request = running(bench)
    computed = request.num_computed_tokens
    bench.answer(by_hand({"a": 3}, {"a": [1, 2]}), {"a": [1, 5]})
    assert list(request.output_token_ids) == [7, 1, 5]
    assert request.num_computed_tokens == computed - 1


def test_a_copy_without_its_number_stands_for_the_step_in_flight() -> None:
    bench = Bench()
    bench.add("a", answer=6)
    output = bench.step()
    assert [o.new_token_ids for o in bench.answer(without_step(output))] == [[7]]
    assert bench.answer(output) == []
    assert bench.broken("WORKER") == 1


def test_what_is_in_flight_with_other_tokens_is_refused() -> None:
    bench = Bench()
    request = bench.add("a", answer=6)
    output = bench.step()
    assert bench.answer(by_hand({"a": 1})) == []
    assert bench.broken("WORKER") == 1
    assert [o.new_token_ids for o in bench.answer(output)] == [[7]]
    assert request.num_output_tokens == 1


def test_an_output_by_hand_counts_once() -> None:
    bench = Bench()
    request = running(bench)
    output = by_hand({"a": 1})
    bench.answer(output)
    assert bench.answer(output) == []
    assert request.num_output_tokens == 2


def test_workers_still_hear_who_has_finished() -> None:
    bench = Bench()
    running(bench)
    running(bench, "b")
    bench.scheduler.finish_requests("b", bench.aborted)
    bench.answer(by_hand({"a": 1}))
    assert bench.step().finished_req_ids == {"b"}


def test_requests_that_are_put_in_by_hand_run_and_end() -> None:
    bench = Bench()
    scheduler, request = bench.scheduler, running(bench)
    scheduler.running.remove(request)
    del scheduler.requests["a"]
    assert scheduler.get_num_unfinished_requests() == 0
    scheduler.requests["a"] = request
    scheduler.running.append(request)
    assert scheduler.get_num_unfinished_requests() == 1
    bench.answer(by_hand({"a": 1}))
    scheduler.finish_requests("a", bench.aborted)
    assert scheduler.get_num_unfinished_requests() == 0
    assert bench.free == 31
