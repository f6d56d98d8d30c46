"""Streaming input sessions inside vllm-omni 0.16.0: turns under one id, their blocks, and the hand-off of the whole."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.adapters.omni_verified.test_handoffs import Bench
from tests.differential.omni import SENTINEL
from tests.differential.settings import Add

from vllm_lifecycle.spec.lifecycles.vocabulary import Status

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


class Talk(Bench):
    """A scheduler whose clients send their input in turns."""

    def turn(self, rid: str, prompt: int = 3, answer: int = 2, resumable: bool = True) -> Any:
        """The next input of a session, or (not resumable) its end."""
        add = Add(rid, own=prompt, answer=answer)
        request = self.factory.request(add, self.factory.shared(add))
        request.resumable = resumable
        self.scheduler.add_request(request)
        return request

    def steps(self, count: int, token: int = 7) -> list[Any]:
        """So many steps; what clients hear."""
        return [one for _ in range(count) for one in self.step(token)[1]]

    def seq(self, rid: str = "a") -> Any:
        """The kernel's record."""
        return self.scheduler._kernel.seqs[rid]


def test_a_turn_ends_with_its_reason_and_keeps_its_blocks_but_no_slot() -> None:
    talk = Talk("", slots=1)
    request = talk.turn("a", prompt=5, answer=2)
    ends = [str(one.finish_reason) for one in talk.steps(2)]
    assert ends == ["None", "length"] and request.status.name == "WAITING_FOR_STREAMING_REQ"
    assert talk.free == 5 and not talk.scheduler.has_requests() and list(talk.scheduler.waiting) == [request]
    talk.add("b", prompt=3, answer=1)
    assert list(talk.scheduler.schedule().num_scheduled_tokens) == ["b"]


def test_the_next_input_joins_what_is_computed() -> None:
    talk = Talk("")
    request = talk.turn("a", prompt=5, answer=2)
    talk.steps(2)
    known = list(request.all_token_ids)
    more = talk.turn("a", prompt=3, answer=1)
    assert list(request.all_token_ids) == known[:-1] + list(more.prompt_token_ids)
    assert (request.num_prompt_tokens, request.num_output_tokens, request.max_tokens) == (9, 0, 1)
    output = talk.scheduler.schedule()
    new = output.scheduled_new_reqs[0]
    assert (output.num_scheduled_tokens, new.num_computed_tokens) == ({"a": 3}, 6)
    assert new.prompt_token_ids == list(request.all_token_ids) and len(new.block_ids[0]) == 3
    assert str(talk.answer(output)[0].finish_reason) == "length"


def test_a_turn_in_the_step_after_the_last_one_leaves_the_workers_batch_first() -> None:
    talk = Talk("")
    talk.turn("a", prompt=5, answer=1)
    talk.turn("a", prompt=3, answer=1)
    talk.steps(1)
    cached = talk.scheduler.schedule().scheduled_cached_reqs
    assert (cached.resumed_req_ids, cached.req_ids) == ({"a"}, [])
    later = Talk("")
    later.turn("a", prompt=5, answer=1)
    later.steps(2)
    later.turn("a", prompt=3, answer=1)
    assert later.scheduler.schedule().scheduled_cached_reqs.resumed_req_ids == set()


def test_input_that_comes_early_waits_for_the_turn_and_the_end_for_all_of_it() -> None:
    talk = Talk("")
    talk.turn("a", prompt=5, answer=2)
    talk.turn("a", prompt=3, answer=1)
    talk.turn("a", resumable=False)
    ends = [str(one.finish_reason) for one in talk.steps(3)]
    assert ends == ["None", "length", "length"]
    assert not talk.scheduler.requests and talk.free == 7
    assert not talk.scheduler.breaches.counts


def test_nothing_is_taken_of_a_session_that_was_closed() -> None:
    talk = Talk("")
    talk.turn("a", prompt=5, answer=1)
    talk.turn("a", resumable=False)
    talk.turn("a")
    talk.steps(1)
    assert not talk.scheduler.requests and sum(talk.scheduler.breaches.counts.values()) == 1


def test_the_keys_of_blocks_end_with_what_is_computed() -> None:
    talk = Talk("")
    request = talk.turn("a", prompt=6, answer=2)
    talk.steps(2)
    assert len(request.block_hashes) == 2, "the token that ended the turn fills a block"
    talk.turn("a", prompt=5, answer=1)
    known = len(request.all_token_ids)
    request.block_hashes, ours = [], list(request.block_hashes)
    request.update_block_hashes()
    assert ours == request.block_hashes and len(ours) == known // 4 == 3


def test_a_session_that_is_closed_while_it_waits_is_handed_on_whole() -> None:
    talk = Talk("end")
    talk.turn("a", prompt=5, answer=2)
    talk.steps(2)
    assert talk.step()[0] == {}, "a turn is not handed on"
    talk.turn("a", prompt=2, answer=1)
    talk.steps(1)
    talk.turn("a", resumable=False)
    assert talk.seq().status is Status.WAITING_FOR_TRANSFER_FREE and talk.scheduler.has_requests()
    shipped, heard = talk.step()
    assert [(str(one.finish_reason), one.kv_transfer_params["kv_metadata"]) for one in heard] == [
        ("stop", shipped["a"])
    ], "the parameters of the hand-off reach the client"
    assert shipped["a"]["seq_len"] == 8 and len(shipped["a"]["block_ids"]) == 2
    talk.step(copied=("a",))
    assert not talk.scheduler.requests and talk.free == 7


def test_one_hand_off_for_all_turns_and_its_blocks_stay() -> None:
    talk = Talk("prefill_finished")
    talk.turn("a", prompt=5, answer=2)
    talk.step()
    shipped, outputs = talk.step()
    assert shipped["a"]["seq_len"] == 5 and str(outputs[0].finish_reason) == "length"
    assert talk.scheduler.transfer_triggered_requests == {"a"} == talk.scheduler.active_kv_transfers
    talk.turn("a", prompt=2, answer=2)
    assert talk.step()[0] == {} and talk.step()[0] == {}, "once for one incarnation"
    talk.abort("a")
    assert talk.scheduler.waiting_for_transfer_free == {"a"} and talk.free == 5
    talk.step(copied=("a",))
    assert talk.free == 7 and not talk.scheduler.requests


def test_a_sentinel_that_ends_a_turn_is_forgotten_with_it() -> None:
    talk = Talk("special_token")
    talk.turn("a", prompt=5, answer=2)
    talk.step()
    talk.step(token=SENTINEL)
    talk.turn("a", prompt=2, answer=3)
    assert talk.step()[0] == {} and not talk.scheduler.requests_needing_kv_transfer
    assert talk.step(token=SENTINEL)[0] == {}
    talk.step()
    assert talk.scheduler.requests_needing_kv_transfer["a"]["seq_len"] == 10


def test_who_kept_blocks_that_others_wait_for_gives_way() -> None:
    talk = Talk("", blocks=5)
    for rid in "ab":
        talk.turn(rid, prompt=7, answer=1)
        talk.steps(1)
    assert talk.free == 0
    for rid in "ab":
        talk.turn(rid, prompt=3, answer=1)
    heard = [(one.request_id, str(one.finish_reason)) for one in talk.steps(2)]
    assert heard == [("a", "length")] and talk.seq("b").status is Status.WAITING
    talk.turn("a", resumable=False)
    heard = [(one.request_id, str(one.finish_reason)) for one in talk.steps(1)]
    assert heard == [("b", "length")]


def test_input_beyond_the_model_or_the_cache_ends_the_session() -> None:
    talk = Talk("", blocks=4)
    talk.turn("a", prompt=7, answer=1)
    talk.steps(1)
    talk.turn("a", prompt=12)
    talk.turn("a", prompt=1)
    assert not talk.scheduler.requests, "its client has not heard of the end yet, so this is no new session"
    assert [str(one.finish_reason) for one in talk.steps(1)] == ["error"] and not talk.scheduler.requests


def test_a_turn_that_ends_after_a_preemption_computes_again() -> None:
    talk = Talk("")
    request = talk.turn("a", prompt=5, answer=2)
    talk.steps(1)
    output = talk.scheduler.schedule()
    kernel = talk.scheduler._kernel
    kernel.preempt(kernel.seqs["a"])
    assert str(talk.answer(output)[0].finish_reason) == "length"
    assert request.status.name == "WAITING_FOR_STREAMING_REQ" and talk.free == 7
    talk.turn("a", prompt=2, answer=1)
    output = talk.scheduler.schedule()
    new = output.scheduled_new_reqs[0]
    assert new.num_computed_tokens + output.num_scheduled_tokens["a"] == 8 == len(new.prompt_token_ids)
