"""Hand-offs of the verified scheduler inside vllm-omni 0.16.0: what triggers one, what is held and how long, who is told what."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.differential.grammar import Manager
from tests.differential.omni import SENTINEL, Handed, OmniFactory
from tests.differential.settings import Add
from vllm_omni.core.sched.output import OmniNewRequestData, OmniSchedulerOutput

from vllm_lifecycle.adapters.omni import VerifiedOmniARScheduler
from vllm_lifecycle.adapters.vllm.verified.limits import Unsupported
from vllm_lifecycle.spec.lifecycles.vocabulary import Status

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


class Bench:
    """One scheduler of ours, and a worker that samples what it is told to."""

    def __init__(self, handoff: str = "end", told: str = "reported", **setup: Any) -> None:
        self.factory = OmniFactory(Handed(handoff=handoff, **{"blocks": 8, **setup}))
        model = self.factory.config.model_config
        if model.omni_kv_config:
            model.omni_kv_config["acknowledgement"] = told
        self.scheduler = self.factory.scheduler(VerifiedOmniARScheduler, Manager())[0]

    def add(self, rid: str, prompt: int = 6, answer: int = 8, **more: Any) -> Any:
        """A request arrives."""
        add = Add(rid, own=prompt, answer=answer, **more)
        request = self.factory.request(add, self.factory.shared(add))
        self.scheduler.add_request(request)
        return request

    def answer(self, output: Any, token: int = 7, copied: tuple[str, ...] = ()) -> list[Any]:
        """The answer to a step: one token each, and what was copied."""
        ids = list(output.num_scheduled_tokens)
        answer = self.factory.answer(
            req_ids=ids,
            req_id_to_index={rid: i for i, rid in enumerate(ids)},
            sampled_token_ids=[[token] for _ in ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=None,
        )
        answer.kv_extracted_req_ids = list(copied)
        made = self.scheduler.update_from_output(output, answer)
        return [one for client in made.values() for one in client.outputs]

    def step(self, token: int = 7, copied: tuple[str, ...] = ()) -> tuple[Any, list[Any]]:
        """One step and its answer: what was shipped, and what clients hear."""
        output = self.scheduler.schedule()
        return output.finished_requests_needing_kv_transfer, self.answer(output, token, copied)

    def abort(self, rid: str) -> None:
        """The client leaves."""
        self.scheduler.finish_requests(rid, self.factory.status.FINISHED_ABORTED)

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free


def test_who_ends_is_shipped_whole_and_held_until_the_acknowledgement() -> None:
    bench, free = Bench(), 7
    bench.add("a", prompt=6, answer=1)
    _, outputs = bench.step()
    told = outputs[0].kv_transfer_params
    assert told["kv_metadata"] == {"seq_len": 6, "block_ids": told["past_key_values"]}
    assert bench.scheduler.waiting_for_transfer_free == {"a"} and bench.free == free - 2
    assert bench.scheduler._kernel.seqs["a"].status is Status.WAITING_FOR_TRANSFER_FREE
    shipped, _ = bench.step()
    assert shipped == {"a": told["kv_metadata"]} and bench.scheduler.active_kv_transfers == {"a"}
    assert bench.scheduler.has_requests() and bench.scheduler.has_unfinished_requests()
    bench.step(copied=("a",))
    assert (
        bench.free == free and not bench.scheduler.requests and not bench.scheduler.has_unfinished_requests()
    )


def test_a_finished_prompt_triggers_once_and_the_snapshot_survives_an_abort() -> None:
    bench = Bench("prefill_finished")
    bench.add("a", prompt=5)
    bench.step()
    shipped, _ = bench.step()
    assert shipped["a"]["seq_len"] == 5 and len(shipped["a"]["block_ids"]) == 2
    assert bench.step()[0] == {}
    bench.abort("a")
    assert bench.free == 5 and bench.scheduler.waiting_for_transfer_free == {"a"}
    bench.step(copied=("a", "a", "nobody"))
    assert bench.free == 7 and sum(bench.scheduler.breaches.counts.values()) == 2


def test_an_abort_before_it_is_shipped_ships_nothing() -> None:
    bench = Bench("prefill_finished")
    bench.add("a", prompt=5)
    bench.step()
    assert set(bench.scheduler.requests_needing_kv_transfer) == {"a"}
    bench.abort("a")
    assert bench.free == 7 and bench.step()[0] == {}
    bench.add("a", prompt=5)
    bench.step()
    assert set(bench.step()[0]) == {"a"}, "the next request of that id has a hand-off of its own"


def test_who_never_ran_is_not_handed_on() -> None:
    bench = Bench()
    bench.add("a")
    bench.abort("a")
    assert bench.step()[0] == {} and not bench.scheduler.requests


def test_a_snapshot_at_a_sentinel_ends_with_it() -> None:
    bench = Bench("special_token")
    request = bench.add("a", prompt=5)
    bench.step()
    bench.step(token=SENTINEL)
    assert bench.step()[0] == {}, "the sentinel is not computed yet"
    shipped, _ = bench.step(token=SENTINEL)
    place = list(request.all_token_ids).index(SENTINEL) + 1
    assert shipped["a"]["seq_len"] == place == 7 and len(shipped["a"]["block_ids"]) == 2
    assert bench.step()[0] == {}, "once for one incarnation"


def test_a_preemption_leaves_what_is_handed_on_alone() -> None:
    bench = Bench("prefill_finished")
    bench.add("a", prompt=5)
    bench.step()
    named = bench.scheduler.requests_needing_kv_transfer["a"]["block_ids"]
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    pool = bench.scheduler.kv_cache_manager.block_pool
    assert all(pool.blocks[block].ref_cnt == 1 for block in named)
    assert bench.step()[0]["a"]["block_ids"] == named


def test_an_id_that_is_held_is_not_given_again() -> None:
    bench = Bench()
    bench.add("a", answer=1)
    bench.step()
    bench.add("a")
    assert bench.scheduler.waiting_for_transfer_free == {"a"} and not list(bench.scheduler.waiting)


def test_a_worker_that_copies_in_the_step_is_done_with_a_step_without_tokens() -> None:
    bench = Bench(told="in step")
    bench.add("a", answer=1)
    bench.step()
    assert set(bench.step()[0]) == {"a"} and bench.free == 7 and not bench.scheduler.requests


def test_an_acknowledgement_before_the_step_that_ships_does_not_count() -> None:
    bench = Bench()
    bench.add("a", prompt=5, answer=1)
    bench.step(copied=("a",))
    assert set(bench.scheduler.requests_needing_kv_transfer) == {"a"} and bench.free == 5
    assert sum(bench.scheduler.breaches.counts.values()) == 1


def test_the_output_is_vllm_omnis() -> None:
    bench = Bench()
    request = bench.add("a")
    request.external_req_id, request.additional_information = "outer", {"x": [1]}
    output = bench.scheduler.schedule()
    new = output.scheduled_new_reqs[0]
    assert isinstance(output, OmniSchedulerOutput) and isinstance(new, OmniNewRequestData)
    assert (new.external_req_id, new.additional_information) == ("outer", {"x": [1]})


def test_a_payload_that_cannot_be_read_costs_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("")
    requests = [bench.add("a", prompt=3), bench.add("b", prompt=3)]

    def unreadable(request: Any) -> Any:
        if request.request_id == "a":
            raise ValueError("no such payload")

    for request in requests:
        del request.additional_information
    monkeypatch.setattr(type(requests[0]), "additional_information", property(unreadable), raising=False)
    output = bench.scheduler.schedule()
    assert set(output.num_scheduled_tokens) == {"a", "b"}
    ends = {one.request_id: one.finish_reason for one in bench.answer(output)}
    assert str(ends["a"]) == "error" and ends["b"] is None


def test_a_deadline_gives_hand_offs_of_ended_requests_up() -> None:
    bench = Bench()
    bench.scheduler._handing = type(bench.scheduler._handing)(sends=True, in_step=False, timeout=1e-9)
    bench.add("a", answer=1)
    bench.step()
    bench.step()
    bench.step()
    assert bench.free == 7 and not bench.scheduler.requests


def test_words_that_nobody_knows_are_refused() -> None:
    with pytest.raises(Unsupported, match="acknowledgement"):
        Bench(told="sometimes")
    with pytest.raises(Unsupported, match="kv_transfer_criteria"):
        Bench("whenever")


def test_several_groups_are_refused_in_one_line() -> None:
    with pytest.raises(Unsupported, match="several groups"):
        Bench(window=2)
