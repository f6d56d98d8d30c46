"""A scheduler of ours with its worker, connector and clients, driven by hand: small enough to say every order of events."""

from __future__ import annotations

from typing import Any

from tests.differential.build import factory
from tests.differential.connectors import Script
from tests.differential.grammar import Manager
from tests.differential.settings import Add, Setup

from vllm_lifecycle.adapters.vllm.verified import VerifiedAsyncScheduler, VerifiedScheduler


class Bench:
    """The scheduler of a setup, and everything around it."""

    def __init__(self, **setup: Any) -> None:
        self.setup = Setup(**setup)
        self.factory = factory(self.setup)
        self.manager = Manager()
        cls = VerifiedAsyncScheduler if self.setup.asynchronous else VerifiedScheduler
        self.scheduler, self.publisher = self.factory.scheduler(cls, self.manager)
        self.script = Script(self.setup.block_size)
        if self.setup.connector:
            self.scheduler.connector.script = self.script
        self.aborted = self.factory.status.FINISHED_ABORTED

    def add(self, rid: str, **request: Any) -> Any:
        """A request arrives."""
        add = Add(rid=rid, **({"own": 4} | request))
        self.script.adds.setdefault(rid, add)
        made = self.factory.request(add, self.factory.shared(add))
        self.scheduler.add_request(made)
        return made

    def step(self) -> Any:
        """A pass."""
        return self.scheduler.schedule()

    def answer(
        self,
        output: Any,
        tokens: dict[str, list[int]] | None = None,
        *,
        without: tuple[str, ...] = (),
        sent: tuple[str, ...] = (),
        received: tuple[str, ...] = (),
        bad: tuple[int, ...] = (),
    ) -> list[Any]:
        """The worker's answer: one token each unless said otherwise; what the clients hear."""
        ids = [rid for rid in output.num_scheduled_tokens if rid not in without]
        sampled = [(tokens or {}).get(rid, [7]) for rid in ids]
        report = None
        if sent or received or bad:
            report = self.factory.report(
                finished_sending=set(sent), finished_recving=set(received), invalid_block_ids=set(bad)
            )
        made = self.scheduler.update_from_output(
            output,
            self.factory.answer(
                req_ids=ids,
                req_id_to_index={rid: i for i, rid in enumerate(ids)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=None,
                kv_connector_output=report,
            ),
        )
        return [output for client in made.values() for output in client.outputs]

    def turn(self, **answer: Any) -> list[Any]:
        """A step and its answer."""
        return self.answer(self.step(), **answer)

    @property
    def free(self) -> int:
        """Free blocks."""
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def broken(self, party: str) -> int:
        """How often this party broke its contract."""
        counts = self.scheduler.breaches.counts
        return sum(count for (who, _), count in counts.items() if who is not None and who.name == party)
