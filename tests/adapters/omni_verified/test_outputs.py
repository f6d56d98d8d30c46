"""What outputs carry beside tokens: routed experts and performance statistics, as vllm-omni's own scheduler has them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.adapters.omni_verified.test_handoffs import Bench
from tests.differential.grammar import Manager
from tests.differential.omni import OmniFactory
from tests.differential.settings import Add
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler

from vllm_lifecycle.adapters.omni import VerifiedOmniARScheduler
from vllm_lifecycle.adapters.vllm.verified.limits import Unsupported

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
CLASSES = (OmniARScheduler, VerifiedOmniARScheduler)


class Reader:
    """Takes the place of vLLM's reader: what was routed at a place is the place itself."""

    size = 0

    @classmethod
    def create(cls) -> Reader:
        """A reader."""
        return cls()

    def attach_buffer(self, max_num_kv_tokens: int, vllm_config: Any) -> None:
        """So many places there are."""
        self.size = max_num_kv_tokens

    def get_routed_experts(self, indices: Any) -> Any:
        """Of these places."""
        assert all(0 <= place < self.size for place in indices)
        return [int(place) for place in indices]


class Unreadable(Reader):
    """The worker took its memory away."""

    def get_routed_experts(self, indices: Any) -> Any:
        """Of no places."""
        raise FileNotFoundError("no such buffer")


def asked(monkeypatch: pytest.MonkeyPatch, reader: type[Reader], **parallel: int) -> None:
    """Configurations ask for routed experts, which are read by `reader`."""
    plain = OmniFactory._config

    def configured(factory: Any) -> Any:
        made = plain(factory)
        made.model_config.enable_return_routed_experts = True
        for name, size in parallel.items():
            setattr(made.parallel_config, name, size)
        return made

    monkeypatch.setattr("tests.differential.omni.OmniFactory._config", configured)
    monkeypatch.setattr("vllm.v1.core.sched.scheduler.RoutedExpertsReader", reader)
    monkeypatch.setattr("vllm_lifecycle.adapters.omni.verified.experts.RoutedExpertsReader", reader)


def both(monkeypatch: pytest.MonkeyPatch, answer: int, resumable: bool) -> list[list[list[int] | None]]:
    """What the outputs of one request have of experts, of either scheduler."""
    found = []
    for cls in CLASSES:
        bench = Bench("")
        bench.scheduler = bench.factory.scheduler(cls, Manager())[0]
        add = Add("a", own=6, answer=answer)
        request = bench.factory.request(add, bench.factory.shared(add))
        request.resumable = resumable
        bench.scheduler.add_request(request)
        routed = [one.routed_experts for _ in range(answer) for one in bench.step()[1]]
        found.append([None if told is None else told for told in routed])
    return found


@pytest.mark.parametrize("resumable", [False, True])
def test_routed_experts_are_told_with_a_stop(monkeypatch: pytest.MonkeyPatch, resumable: bool) -> None:
    asked(monkeypatch, Reader)
    theirs, ours = both(monkeypatch, 4, resumable)
    assert ours == theirs
    assert ours[:3] == [None] * 3 and len(ours[3] or ()) == 9


def test_experts_that_cannot_be_read_cost_nobody_else_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, Unreadable)
    bench = Bench("")
    bench.add("a", answer=1)
    heard = bench.step()[1]
    assert [(str(one.finish_reason), one.routed_experts) for one in heard] == [("length", None)]
    assert not bench.scheduler.requests and sum(bench.scheduler.breaches.counts.values()) == 1


def test_experts_of_contexts_in_parts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, Reader, decode_context_parallel_size=2)
    with pytest.raises(Unsupported, match="context parallelism"):
        Bench("")


def test_performance_statistics_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metrics:
        """Takes the place of vLLM's, which need a model that it knows."""

        def __init__(self, config: Any) -> None:
            """Nothing is read."""

        def is_enabled(self) -> bool:
            """There are statistics."""
            return True

        def get_step_perf_stats_per_gpu(self, output: Any) -> Any:
            """Of a step: its tokens."""
            return output.total_num_scheduled_tokens

    plain = OmniFactory._config

    def configured(factory: Any) -> Any:
        made = plain(factory)
        made.observability_config.enable_mfu_metrics = True
        return made

    monkeypatch.setattr("tests.differential.omni.OmniFactory._config", configured)
    monkeypatch.setattr("vllm.v1.core.sched.scheduler.ModelMetrics", Metrics)
    monkeypatch.setattr("vllm_lifecycle.adapters.omni.verified.v016.ModelMetrics", Metrics)
    told = []
    for cls in CLASSES:
        bench = Bench("", log_stats=True)
        bench.scheduler = bench.factory.scheduler(cls, Manager())[0]
        bench.add("a", answer=2)
        found = []
        for _ in range(2):
            output = bench.scheduler.schedule()
            answer = bench.factory.answer(
                req_ids=["a"],
                req_id_to_index={"a": 0},
                sampled_token_ids=[[7]],
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=None,
            )
            found += [
                one.scheduler_stats.perf_stats
                for one in bench.scheduler.update_from_output(output, answer).values()
            ]
        told.append(found)
    assert told[1] == told[0] == [6, 1]
