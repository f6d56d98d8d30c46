"""No order of client, worker and connector events raises out of the scheduler; who broke a contract is known."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from tests.adapters.verified.bench import Bench

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


def ends(outputs: list[object], rid: str) -> list[str]:
    """How the client of a request hears that it ended."""
    return [
        o.finish_reason.name  # type: ignore[attr-defined]
        for o in outputs
        if o.request_id == rid and o.finish_reason is not None  # type: ignore[attr-defined]
    ]


def test_an_id_in_use_is_refused_and_its_owner_goes_on() -> None:
    bench = Bench()
    bench.add("a", answer=3)
    bench.turn()
    bench.add("a", own=8)
    assert bench.broken("CLIENT") == 1
    assert list(bench.scheduler.requests) == ["a"]
    assert [len(o.new_token_ids) for o in bench.turn()] == [1]


def test_an_id_that_a_transfer_holds_is_refused() -> None:
    bench = Bench(connector=True)
    bench.add("a", answer=1, hold=True)
    bench.turn()
    assert "a" in bench.scheduler.requests
    bench.add("a")
    assert bench.broken("CLIENT") == 1
    bench.turn(sent=("a",))
    assert "a" not in bench.scheduler.requests
    bench.add("a")
    assert bench.scheduler.get_num_unfinished_requests() == 1


def test_a_request_larger_than_the_cache_ends_with_an_error_and_nobody_waits_behind_it() -> None:
    bench = Bench(blocks=4, model_length=64)
    bench.add("big", own=40)
    bench.add("small", own=3)
    outputs = bench.turn()
    assert ends(outputs, "big") == ["ERROR"]
    assert [o.request_id for o in outputs if o.new_token_ids] == ["small"]


def test_a_request_that_grows_beyond_the_cache_ends_with_an_error() -> None:
    bench = Bench(blocks=4, model_length=64)
    bench.add("a", own=10, answer=40)
    heard = [o for _ in range(8) for o in bench.turn()]
    assert ends(heard, "a") == ["ERROR"]
    assert bench.free == 3
    assert not bench.scheduler.has_unfinished_requests()


def test_a_prompt_beyond_the_models_length_ends_with_its_first_token() -> None:
    bench = Bench(model_length=16, budget=64)
    bench.add("a", own=30, answer=5)
    assert ends(bench.turn(), "a") == ["LENGTH"]
    assert bench.free == 31


def test_a_row_that_the_worker_leaves_out_costs_only_its_request() -> None:
    bench = Bench()
    bench.add("a", answer=3)
    bench.add("b", answer=3)
    outputs = bench.turn(without=("a",))
    assert ends(outputs, "a") == ["ERROR"]
    assert [o.request_id for o in outputs if o.new_token_ids] == ["b"]
    assert bench.broken("WORKER") == 1
    assert list(bench.turn()[0].new_token_ids) == [7]


def test_a_step_is_answered_once() -> None:
    bench = Bench()
    bench.add("a", answer=5)
    output = bench.step()
    assert len(bench.answer(output)) == 1
    assert bench.answer(output) == []
    assert bench.broken("WORKER") == 1
    assert bench.scheduler.requests["a"].num_output_tokens == 1


def test_more_tokens_than_awaited_are_not_taken() -> None:
    bench = Bench()
    bench.add("a", answer=5)
    (output,) = bench.turn(tokens={"a": [7, 8, 9]})
    assert list(output.new_token_ids) == [7]
    assert bench.broken("WORKER") == 1


def test_an_empty_answer_is_computed_again() -> None:
    bench = Bench()
    bench.add("a", answer=2)
    assert bench.turn(tokens={"a": []}) == []
    assert bench.step().num_scheduled_tokens == {"a": 1}


@pytest.mark.parametrize("report", [{"sent": ("ghost",)}, {"received": ("ghost",)}, {"bad": (9,)}])
def test_a_report_about_nobody_is_counted_against_the_connector(
    report: dict[str, tuple[object, ...]],
) -> None:
    bench = Bench(connector=True)
    bench.add("a", answer=3)
    (output,) = bench.turn(**report)
    assert list(output.new_token_ids) == [7]
    assert bench.broken("CONNECTOR") == 1


def test_a_send_that_is_reported_twice_or_too_early_frees_nothing() -> None:
    bench = Bench(connector=True)
    bench.add("a", answer=2, hold=True)
    bench.turn(sent=("a",))
    assert bench.broken("CONNECTOR") == 1
    bench.turn()
    held = bench.free
    bench.turn(sent=("a",))
    assert bench.free > held
    bench.turn(sent=("a",))
    assert bench.broken("CONNECTOR") == 2


@pytest.mark.parametrize("order", [("received", "sent"), ("sent", "received")])
def test_blocks_of_an_aborted_load_wait_for_every_transfer(order: tuple[str, str]) -> None:
    bench = Bench(connector=True)
    bench.add("a", own=12, match=8, between=True, hold=True)
    bench.turn()
    held = bench.free
    bench.scheduler.finish_requests("a", bench.aborted)
    assert bench.free == held
    assert bench.scheduler.has_requests()
    bench.turn(**{order[0]: ("a",)})
    assert bench.free == held
    bench.turn(**{order[1]: ("a",)})
    assert bench.free == 31
    assert not bench.broken("CONNECTOR")


def test_the_blocks_of_an_aborted_request_wait_for_the_step_in_flight() -> None:
    bench = Bench()
    bench.add("a", own=9, answer=5)
    output = bench.step()
    bench.scheduler.finish_requests("a", bench.aborted)
    assert bench.free == 28
    assert bench.answer(output) == []
    assert bench.free == 31


def test_a_connector_that_claims_the_whole_prompt_leaves_a_token() -> None:
    bench = Bench(connector=True)
    bench.add("a", own=8)
    bench.scheduler.connector.get_num_new_matched_tokens = lambda request, local: (8, False)
    assert bench.step().num_scheduled_tokens == {"a": 1}


HOOKS = (
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
    "request_finished",
    "update_connector_output",
    "take_events",
)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_connector_hook_that_raises_costs_at_most_its_request(hook: str) -> None:
    bench = Bench(connector=True)
    bench.add("other", answer=30)
    bench.turn()
    whole = getattr(bench.scheduler.connector, hook)

    def fails(*args: object, **kwargs: object) -> None:
        raise ValueError("out of order")

    setattr(bench.scheduler.connector, hook, fails)
    bench.add("a", answer=2)
    heard = [*bench.turn(), *bench.turn(received=("ghost",))]
    setattr(bench.scheduler.connector, hook, whole)
    heard += [*bench.turn(), *bench.turn()]
    assert len([o for o in heard if o.request_id == "other" and o.new_token_ids]) == 4
    assert len(ends(heard, "a")) == 1
    assert list(bench.scheduler.requests) == ["other"]


def test_a_grammar_that_does_not_compile_ends_its_request_only() -> None:
    from concurrent.futures import Future

    bench = Bench()
    request = bench.add("a", grammar=True)
    bench.add("b", answer=3)
    failed: Future[object] = Future()
    failed.set_exception(ValueError("no such grammar"))
    request.structured_output_request.grammar = failed
    outputs = bench.turn()
    assert ends(outputs, "a") == ["ERROR"]
    assert [o.request_id for o in outputs if o.new_token_ids] == ["b"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_forced_reset_never_raises_and_keeps_what_is_held(asynchronous: bool) -> None:
    bench = Bench(connector=True, asynchronous=asynchronous)
    bench.add("loads", own=12, match=8, between=True)
    bench.add("runs", own=9, answer=6)
    outputs = [bench.step() for _ in range(1 + asynchronous)]
    assert bench.scheduler.reset_prefix_cache(reset_running_requests=True) is False
    for output in outputs:
        bench.answer(output)
    bench.turn(received=("loads",))
    for _ in range(12):
        bench.turn()
    assert not bench.scheduler.has_unfinished_requests()
    assert bench.free == 31


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_send_cannot_have_ended_in_a_step_that_left_before_it_began(asynchronous: bool) -> None:
    bench = Bench(connector=True, asynchronous=asynchronous)
    bench.add("a", own=9, answer=9, hold=True)
    outputs = [bench.step() for _ in range(1 + asynchronous)]
    bench.scheduler.finish_requests("a", bench.aborted)
    for output in outputs:
        bench.answer(output, sent=("a",))
    assert bench.broken("CONNECTOR") == len(outputs)
    assert "a" in bench.scheduler.requests and bench.free < 31
    bench.turn(sent=("a",))
    assert bench.free == 31 and "a" not in bench.scheduler.requests


def test_a_quick_reader_of_a_completed_request_may_be_done_before_the_next_step_leaves() -> None:
    bench = Bench(connector=True, asynchronous=True)
    bench.add("a", own=9, answer=1, hold=True)
    bench.add("b", own=3, answer=9)
    outputs = [bench.step(), bench.step()]
    (told,) = [o for o in bench.answer(outputs[0]) if o.request_id == "a"]
    assert told.finish_reason is not None
    bench.answer(outputs[1], sent=("a",))
    assert not bench.broken("CONNECTOR")
    assert "a" not in bench.scheduler.requests


def test_a_load_cannot_have_ended_in_a_step_that_left_before_it_began() -> None:
    bench = Bench(connector=True, asynchronous=True)
    bench.add("runs", own=3, answer=9)
    before = bench.step()
    bench.add("loads", own=12, match=8, between=True)
    after = bench.step()
    bench.answer(before, received=("loads",))
    assert bench.broken("CONNECTOR") == 1
    assert "loads" not in bench.step().num_scheduled_tokens
    bench.answer(after, received=("loads",))
    assert bench.broken("CONNECTOR") == 1
    assert bench.step().num_scheduled_tokens["loads"] == 4


def test_what_goes_on_from_a_token_that_is_not_there_is_not_taken() -> None:
    bench = Bench(asynchronous=True)
    bench.add("a", own=4, answer=3)
    bench.answer(bench.step())
    outputs = [bench.step(), bench.step()]
    assert bench.answer(outputs[0], {"a": []}) == []
    request = bench.scheduler.requests["a"]
    assert (request.num_computed_tokens, request.num_output_placeholders) == (4, 0)
    again = bench.step()
    assert bench.answer(outputs[1], {"a": [9]}) == []
    (heard,) = bench.answer(again, {"a": [8]})
    assert list(heard.new_token_ids) == [8]


def test_a_decoder_that_leaves_the_lockstep_has_nothing_stale_in_flight() -> None:
    bench = Bench(asynchronous=True)
    bench.add("a", own=4, answer=2)
    bench.answer(bench.step())
    bench.step()
    bench.step()  # its last token is in flight, so it has no row here
    request = bench.scheduler.requests["a"]
    assert getattr(request, "num_stale_output_tokens", 0) == 0
