"""The worker of a pair: which tokens a step samples, what the connector's side reports with them, and the drafts for the next.

It answers from the reference's state alone, and gives each side an answer of its own with the same content.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from zlib import crc32

import numpy as np
from tests.differential.build import Factory, token
from tests.differential.connectors import Load, PairedStats
from tests.differential.settings import Add, Setup
from tests.differential.side import Side


@dataclass
class Flight:
    """A step in flight."""

    outputs: tuple[Any, Any]
    number: int
    told: Any
    """The output as it was when the step was dispatched."""
    tokens: dict[str, int]
    drafts: dict[str, int]
    samples: frozenset[str]
    prompts: frozenset[str]
    """Requests whose prompt this step completes."""
    loads: tuple[Load, ...]
    """Loads that this step itself does."""
    adds: dict[str, Add]
    images: dict[str, list[int]] = field(default_factory=dict)


class Worker:
    """Answers steps, for both sides alike."""

    setup: Setup
    factory: Factory
    sides: tuple[Side, Side]

    def __init__(self) -> None:
        self.steps = 0
        self.loading: list[Load] = []
        self.received: list[str] = []
        self.sent: list[str] = []
        self.broken: dict[str, int] = {}
        self.heard: dict[str, int] = {}
        """The first step with which the workers hear of a transfer: an earlier one's answer cannot report it."""
        self.met: Counter[str] = Counter()
        """What was reached, and how often."""

    @property
    def reference(self) -> Side:
        """The side that the environment looks at."""
        return self.sides[0]

    def _sampled(self, flight: Flight, rid: str, accept: int) -> list[int]:
        add = flight.adds[rid]
        if rid not in flight.samples or add.pooling:
            return []
        request = self.reference.requests[rid]
        count = 1
        if rid in flight.drafts:
            accepted = (accept + crc32(rid.encode())) % (flight.drafts[rid] + 1)
            self.met["drafts accepted"] += accepted > 0
            self.met["drafts rejected"] += accepted < flight.drafts[rid]
            count += accepted
        return [token(add, request.num_output_tokens + i) for i in range(count)]

    def _report(self, flight: Flight) -> Any:
        """Makes the connector part of the answer, once for each side."""
        sent = {rid for rid in self.sent if self.heard[rid] <= flight.number}
        received = {rid for rid in self.received if self.heard[rid] <= flight.number}
        heard = [load for load in self.loading if self.heard[load.rid] <= flight.number]
        covered = {load.rid: load for load in (*flight.loads, *heard)}
        bad: set[int] = set()
        for rid in [rid for rid in self.broken if rid in covered]:
            blocks = covered[rid].blocks
            bad |= set(blocks[self.broken.pop(rid) % len(blocks) :])
            self.met["load between steps failed" if rid in self.heard else "load in the step failed"] += 1
            self.met["load failed"] += 1
        self.met["load reported"] += len(received)
        self.met["send reported"] += len(sent)
        self.sent = [rid for rid in self.sent if rid not in sent]
        self.received = [rid for rid in self.received if rid not in received]
        counts = {"steps": self.steps} if self.setup.log_stats else None
        if not (sent or received or bad or self.setup.connector):
            return lambda: None
        return lambda: self.factory.report(
            finished_sending=set(sent) or None,
            finished_recving=set(received) or None,
            invalid_block_ids=set(bad),
            kv_connector_stats=counts and PairedStats(data=dict(counts)),
        )

    def _reply(self, flight: Flight, sampled: dict[str, list[int]], report: Any) -> Any:
        ids = list(sampled)
        pooled = None
        if any(add.pooling for add in flight.adds.values()):
            pooled = [[1.0] if flight.adds[rid].pooling and rid in flight.samples else None for rid in ids]
        return self.factory.answer(
            req_ids=ids,
            req_id_to_index={rid: i for i, rid in enumerate(ids)},
            sampled_token_ids=list(sampled.values()),
            pooler_output=pooled,
            kv_connector_output=report,
            **self._measures(flight, sampled),
        )

    def _measures(self, flight: Flight, sampled: dict[str, list[int]]) -> dict[str, Any]:
        """Log probabilities, NaN counts and graph statistics, where a request of the step asks for the first."""
        asking = {rid for rid, add in flight.adds.items() if add.logprobs}
        if not asking:
            return {"logprobs": None, "prompt_logprobs_dict": {}}
        counts = [len(tokens) if self.setup.drafts else 1 for tokens in sampled.values()]
        rows = sum(counts)
        lists, tensors = self.factory.outputs.LogprobsLists, self.factory.outputs.LogprobsTensors
        values = np.arange(2 * rows).reshape(rows, 2)
        starts = [sum(counts[:i]) for i in range(len(counts))] if self.setup.drafts else None
        prompts = {
            rid: tensors(*(np.full((2, 2), n) for n in range(3)))
            for rid in asking & flight.prompts & flight.samples
            if sampled[rid]
        }
        graph = import_module("vllm.compilation.cuda_graph").CUDAGraphStat
        self.met["NaN counts"] += 1
        return {
            "logprobs": lists(values, values / 7, np.arange(rows), starts),
            "prompt_logprobs_dict": prompts,
            "num_nans_in_logits": {rid: crc32(rid.encode()) % 3 for rid in sampled},
            "cudagraph_stats": graph(rows, rows + 1, 1, "FULL"),
        }

    def _proposed(self, flight: Flight, number: int) -> list[Any]:
        """The drafter's proposals for the next step, one for each side; none when the workers keep them."""
        ids = [rid for rid in flight.tokens if rid in flight.samples]
        if self.setup.asynchronous or not ids:
            return []
        counts = [(number // 3 + crc32(rid.encode())) % (self.setup.drafts + 1) for rid in ids]
        return [
            self.factory.drafts(list(ids), [[300 + i for i in range(n)] for n in counts]) for _ in self.sides
        ]
