"""What is asked of a scheduler on 0.32.0 alone: sessions refused, loads that fail by request, ends of all, views, pauses."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("vllm.v1.core.sched.diffusion_scheduler", reason="only 0.32.0 has it")

from tests.adapters.verified.bench import Bench
from vllm.v1.core.sched.interface import PauseState

from vllm_lifecycle.adapters.vllm.verified import VerifiedAsyncScheduler, VerifiedScheduler

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def ends(outputs: list[Any]) -> dict[str, str]:
    """Who ended, and how."""
    return {o.request_id: o.finish_reason.name for o in outputs if o.finish_reason is not None}


def report(bench: Bench, output: Any, **transfer: Any) -> list[Any]:
    """The answer of a step whose requests sample one token each, with a report of the connector."""
    ids = list(output.num_scheduled_tokens)
    answer = bench.factory.answer(
        req_ids=ids,
        req_id_to_index={rid: i for i, rid in enumerate(ids)},
        sampled_token_ids=[[7] for _ in ids],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=None,
        kv_connector_output=bench.factory.report(**transfer),
    )
    made = bench.scheduler.update_from_output(output, answer)
    return [output for client in made.values() for output in client.outputs]


def test_a_streaming_session_ends_with_an_error_and_the_others_go_on() -> None:
    bench = Bench()
    session = bench.factory.request_cls(
        request_id="session",
        prompt_token_ids=[1, 2, 3],
        sampling_params=bench.add("other", answer=2).sampling_params,
        pooling_params=None,
        resumable=True,
    )
    bench.scheduler.add_request(session)
    heard = bench.turn()
    assert ends(heard) == {"session": "ERROR"}
    assert [o.request_id for o in heard if o.new_token_ids] == ["other"]
    assert "session" not in bench.scheduler.requests


def test_a_grammar_that_cannot_be_compiled_ends_its_request() -> None:
    bench = Bench()
    request = bench.add("a", grammar=True)
    failed: Future[Any] = Future()
    failed.set_exception(ValueError("no such grammar"))
    request.structured_output_request.grammar = failed
    assert ends(bench.turn()) == {"a": "ERROR"}
    assert bench.scheduler.get_request_counts() == (0, 0)


@pytest.mark.parametrize(("policy", "ended"), [("recompute", {}), ("fail", {"a": "ERROR"})])
def test_a_load_that_failed_as_a_whole(policy: str, ended: dict[str, str]) -> None:
    bench = Bench(connector=True, load_failures=policy)
    bench.add("a", own=12, match=8, between=True)
    output = bench.step()
    assert bench.scheduler.get_request_counts() == (0, 1)
    assert ends(report(bench, output, failed_recving={"a"})) == ended
    heard = report(bench, bench.step(), finished_recving={"a"})
    assert ends(heard) == {}
    if ended:
        assert bench.free == bench.setup.blocks - 1
        return
    again = bench.step()  # nothing came, so the connector is asked again, and loads again
    assert again.total_num_scheduled_tokens == 0
    report(bench, again, finished_recving={"a"})
    assert [o.request_id for o in bench.turn()] == ["a"]


def test_an_unmatched_failure_is_counted_against_the_connector() -> None:
    bench = Bench(connector=True)
    report(bench, bench.step(), failed_recving={"nobody"})
    assert bench.broken("CONNECTOR") == 1


def test_all_requests_can_be_ended_at_once() -> None:
    bench = Bench(slots=1)
    for rid in "abc":
        bench.add(rid, answer=3)
    bench.turn()
    ended = bench.scheduler.finish_requests(None, bench.aborted)
    assert [request.request_id for request in ended] == ["a", "b", "c"]
    assert bench.scheduler.get_num_unfinished_requests() == 0
    assert bench.scheduler.finish_requests(["a", "nobody"], bench.aborted) == []


def test_what_the_engine_reads_at_its_start_is_there() -> None:
    scheduler = Bench().scheduler
    (manager,) = scheduler.kv_cache_manager.coordinator.single_type_managers
    assert manager.block_size == manager.kv_cache_spec.block_size
    assert scheduler.get_kv_connector() is None
    assert scheduler.get_ec_connector() is None
    assert scheduler.pause_state is PauseState.UNPAUSED
    assert scheduler.get_kv_cache_usage() == 0.0
    assert scheduler.make_stats() is None
    assert not scheduler.has_requests()


def test_a_pause_of_all_lets_the_engine_rest_and_loses_nothing() -> None:
    bench = Bench()
    bench.add("a", answer=3)
    bench.turn()
    bench.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert bench.scheduler.get_num_unfinished_requests() == 0
    assert bench.step().total_num_scheduled_tokens == 0
    assert bench.scheduler.get_request_counts() == (1, 0)
    bench.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert [o.request_id for o in bench.turn()] == ["a"]


def test_the_plain_name_does_as_the_configuration_says_and_the_asynchronous_one_always_plans_ahead() -> None:
    for asynchronous in (False, True):
        bench = Bench(asynchronous=asynchronous)
        plain, _ = bench.factory.scheduler(VerifiedScheduler, bench.manager)
        ahead, _ = bench.factory.scheduler(VerifiedAsyncScheduler, bench.manager)
        assert (plain.asynchronous, ahead.asynchronous) == (asynchronous, True)


def test_repetition_ends_a_request_from_its_least_length_on() -> None:
    bench = Bench()
    request = bench.add("a", answer=20)
    parameters = pytest.importorskip("vllm.sampling_params")
    request.sampling_params.repetition_detection = parameters.RepetitionDetectionParams(
        max_pattern_size=1, min_pattern_size=1, min_count=3
    )
    request.sampling_params.min_tokens = 5
    heard = [o for _ in range(8) for o in bench.turn()]
    assert ends(heard) == {"a": "REPETITION"}
    assert sum(len(o.new_token_ids) for o in heard) == 5
