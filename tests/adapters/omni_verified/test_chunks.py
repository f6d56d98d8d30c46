"""Input in chunks: who waits for one keeps his place; what is sent and what comes late is not lost and not mixed up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.adapters.omni_verified.test_handoffs import Bench

from vllm_lifecycle.adapters.omni import config
from vllm_lifecycle.adapters.omni.verified.settings import chunk_timeout
from vllm_lifecycle.adapters.vllm.scope import Scope
from vllm_lifecycle.adapters.vllm.verified.limits import Unsupported

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


class Chunked(Bench):
    """A scheduler whose requests come in chunks; the receiving thread is played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **setup: Any) -> None:
        configure = type(self).configured
        monkeypatch.setattr("tests.differential.omni.OmniFactory._config", configure)
        with config.without_threads():
            super().__init__("", **setup)
        self.adapter = self.scheduler.chunk_transfer_adapter

    @staticmethod
    def configured(factory: Any) -> Any:
        """A configuration with chunks."""
        from tests.differential.build import Factory

        made = Factory._config(factory)
        config.configure(made, Scope("chunks", chunks=True))
        return made

    def chunk(self, rid: str, number: int, last: bool = False) -> None:
        """A chunk arrives, and is polled for."""
        self.adapter.connector.chunks[f"{rid}_0_{number}"] = {"finished": last}
        self.poll()

    def poll(self) -> None:
        """The receiving thread looks once for everybody."""
        waiting = list(self.adapter._pending_load_reqs)
        self.adapter._pending_load_reqs.clear()
        for request in waiting:
            self.adapter.request_ids_mapping[request.request_id] = request.external_req_id
            if not self.adapter._poll_single_request(request):
                self.adapter._pending_load_reqs.append(request)

    def add(self, rid: str, prompt: int = 6, answer: int = 8, **more: Any) -> Any:
        """A request that comes in chunks."""
        add_request = self.scheduler.add_request

        def named(request: Any) -> None:
            request.external_req_id = request.request_id
            add_request(request)

        self.scheduler.add_request = named
        try:
            return super().add(rid, prompt, answer, **more)
        finally:
            self.scheduler.add_request = add_request


def test_who_waits_for_a_chunk_keeps_his_place(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Chunked(monkeypatch)
    requests = [bench.add(rid) for rid in "abc"]
    bench.step()
    assert [r.status.name for r in requests] == ["WAITING_FOR_CHUNK"] * 3
    bench.chunk("b", 0)
    output = bench.scheduler.schedule()
    assert list(output.num_scheduled_tokens) == ["b"] and requests[1].status.name == "RUNNING"
    bench.answer(output)
    assert [r.request_id for r in bench.scheduler.waiting] == ["a", "c"]
    bench.step()
    assert requests[1].status.name == "WAITING_FOR_CHUNK" and list(bench.scheduler.running) == [requests[1]]
    bench.chunk("b", 1, last=True)
    assert list(bench.scheduler.schedule().num_scheduled_tokens) == ["b"]


def test_an_abort_while_it_waits_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Chunked(monkeypatch)
    bench.add("a")
    bench.step()
    bench.abort("a")
    assert not bench.adapter._pending_load_reqs and not bench.scheduler.requests
    bench.adapter.connector.chunks["a_0_0"] = {"finished": False}
    again = bench.add("a")
    bench.step()
    bench.poll()
    assert bench.adapter.late == 1 and again.status.name == "WAITING_FOR_CHUNK"
    bench.chunk("a", 0)
    assert list(bench.scheduler.schedule().num_scheduled_tokens) == ["a"]


def test_a_poll_under_way_for_one_that_has_ended_brings_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Chunked(monkeypatch)
    request = bench.add("a")
    bench.step()
    bench.abort("a")
    bench.adapter.connector.chunks["a_0_0"] = {"finished": False}
    assert bench.adapter._poll_single_request(request)
    assert bench.adapter.late == 1 and not bench.adapter._finished_load_reqs


@pytest.mark.parametrize("running", [False, True])
def test_a_chunk_that_never_comes_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    bench = Chunked(monkeypatch)
    bench.add("a")
    bench.step()
    if running:
        bench.chunk("a", 0)
        bench.step()
        bench.step()
    bench.step()
    assert set(bench.scheduler.requests) == {"a"}, "without a deadline nothing ends"
    bench.adapter.patience = 3600.0
    assert bench.step()[1] == []
    bench.adapter.patience = 1e-9
    heard = bench.step()[1]
    assert [(one.request_id, str(one.finish_reason)) for one in heard] == [("a", "error")]
    assert not bench.scheduler.requests and bench.free == 7 and not bench.adapter._pending_load_reqs
    assert {kind for _, kind in bench.scheduler.breaches.counts} == {"chunk_timeout"}
    assert not bench.scheduler.has_unfinished_requests()


def test_the_deadline_is_a_setting() -> None:
    def told(**settings: Any) -> float:
        return chunk_timeout(SimpleNamespace(omni_kv_config=settings or None))

    assert (told(), told(chunk_timeout=0), told(chunk_timeout=2.5)) == (0.0, 0.0, 2.5)
    for wrong in (-1, "soon", True, float("inf")):
        with pytest.raises(Unsupported, match="chunk_timeout"):
            told(chunk_timeout=wrong)
