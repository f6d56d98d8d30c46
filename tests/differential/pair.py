"""Two schedulers side by side: each event happens to both, and everything that can be observed afterwards is compared.

The environment (worker, connectors, clients) is played from the reference's outputs alone; as long as the two agree they are
everybody's outputs.  At the first difference the pair stops: two schedulers that have diverged cannot be brought back together.
"""

from __future__ import annotations

import traceback
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from zlib import crc32

import numpy as np
from tests.differential.build import Factory, factory, token
from tests.differential.connectors import Load, PairedStats, Script
from tests.differential.grammar import Manager, ScriptedGrammar
from tests.differential.plain import Difference, differences, plain
from tests.differential.settings import (
    Abort,
    Add,
    Answer,
    Broken,
    Event,
    Grammar,
    Received,
    Reset,
    Sent,
    Setup,
    Step,
)
from tests.differential.witnesses import of_outputs, of_step

QUEUES = ("running", "waiting", "kv_holding_waiting")


class Side:
    """One scheduler with everything that holds state beside it."""

    def __init__(self, cls: type[Any], made_by: Factory) -> None:
        self.factory = made_by
        self.manager = Manager()
        self.scheduler, self.publisher = made_by.scheduler(cls, self.manager)
        self.script = Script(made_by.setup.block_size)
        self.encoder_connector = getattr(self.scheduler, "ec_connector", None)
        if made_by.setup.connector:
            self.scheduler.connector.script = self.script
        self.requests: dict[str, Any] = {}
        self.trace = ""
        self.result: Any = None

    def call(self, name: str, *args: Any) -> dict[str, Any]:
        """Call a method; what came back or was raised, and all that can be seen from outside."""
        seen: dict[str, Any] = {}
        self.result = None
        try:
            self.result = getattr(self.scheduler, name)(*args)
            seen["returned"] = plain(self.result)
        except Exception as error:
            seen["raised"] = type(error).__name__
            self.trace = _where(error)
            return seen
        return seen | self.observed()

    def observed(self) -> dict[str, Any]:
        """What the engine and others read between calls."""
        scheduler = self.scheduler
        seen = {
            **self.queues(),
            "get_request_counts": scheduler.get_request_counts(),
            "get_num_unfinished_requests": scheduler.get_num_unfinished_requests(),
            "has_requests": scheduler.has_requests(),
            "has_finished_requests": scheduler.has_finished_requests(),
            "free blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "grammar calls": self.manager.told[:],
            "connector calls": self.script.told[:],
        }
        self.manager.told.clear()
        if self.encoder_connector is not None:
            seen["encoder connector calls"] = self.encoder_connector.told[:]
        if self.publisher is not None:
            seen["cache events"] = plain(self.publisher.batches)
            self.publisher.batches = []
        return seen

    def queues(self) -> dict[str, list[str]]:
        """The ids in each queue, in order."""
        scheduler = self.scheduler
        return {
            name: [r.request_id for r in getattr(scheduler, name)]
            for name in QUEUES
            if hasattr(scheduler, name)
        }

    def view(self) -> str:
        """Queues, statuses and blocks, for a reader."""
        try:
            scheduler = self.scheduler
            queues = [
                f"{name} {[_one(r) for r in getattr(scheduler, name)]}"
                for name in QUEUES
                if hasattr(scheduler, name)
            ]
            free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            return "; ".join([*queues, f"{free} blocks free"])
        except Exception as error:
            return f"no view: {type(error).__name__}: {error}"


def _one(request: Any) -> str:
    status = {"RUNNING": "", "WAITING": ""}.get(request.status.name, f" {request.status.name}")
    return f"{request.request_id}{status} {request.num_computed_tokens}/{request.num_tokens}"


def _where(error: BaseException) -> str:
    """The exception and the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[1:][-5:]
    places = [f"      {f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}: {f.line}" for f in frames]
    return "\n".join([*places, f"      {type(error).__name__}: {error}"])


@dataclass
class Flight:
    """A step in flight."""

    outputs: tuple[Any, Any]
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


@dataclass(frozen=True)
class Divergence:
    """The first point at which the two sides differ."""

    event: int
    call: str
    differences: tuple[Difference, ...]


class Pair:
    """Both sides, the environment, and how far they have come."""

    made_by = staticmethod(factory)

    def __init__(self, reference: type[Any], ours: type[Any], setup: Setup) -> None:
        self.setup = setup
        self.factory = self.made_by(setup)
        self.sides = (Side(reference, self.factory), Side(ours, self.factory))
        self.adds: dict[str, Add] = {}
        self.flights: list[Flight] = []
        self.left_in_flight: set[str] = set()
        self.loading: list[Load] = []
        self.holding: list[str] = []
        self.received: list[str] = []
        self.sent: list[str] = []
        self.broken: dict[str, int] = {}
        self.compiling: set[str] = set()
        self.applied = 0
        self.steps = 0
        self.divergence: Divergence | None = None
        self.ended = ""
        """Why the run cannot go on although nothing differs: both raised."""
        self.fresh: tuple[Load, ...] = ()
        """Loads that the last call started for the next step to do itself."""
        self.met: Counter[str] = Counter()
        """What was reached, and how often."""
        self.facts: set[str] = set()
        """What has happened that rows of intended differences ask about."""

    @property
    def reference(self) -> Side:
        """The side that the environment looks at."""
        return self.sides[0]

    def run(self, events: tuple[Event, ...]) -> Divergence | None:
        """Apply events up to the first difference."""
        for event in events:
            self.apply(event)
            if self.over():
                break
        return self.divergence

    def over(self) -> bool:
        """Whether nothing more can be compared."""
        return bool(self.divergence or self.ended)

    def apply(self, event: Event) -> None:
        """Make one event happen to both sides, and compare."""
        self.applied += 1
        match event:
            case Add():
                self._add(event)
            case Step():
                self._step()
            case Answer():
                self._answer(event)
            case Abort():
                self._abort(event)
            case Received(rid):
                if any(load.rid == rid for load in self.loading):
                    self.loading = [load for load in self.loading if load.rid != rid]
                    self.received.append(rid)
            case Sent(rid):
                if rid in self.holding:
                    self.holding.remove(rid)
                    self.sent.append(rid)
            case Broken(rid, block):
                self.broken[rid] = block
            case Grammar():
                self._grammar(event)
            case Reset():
                self.met["reset of what runs" if event.running else "reset"] += 1
                self._both("reset_prefix_cache", *(2 * ((event.running, event.connector),)))

    def _both(self, name: str, first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
        """Call the method on both sides and compare; False when the run is over."""
        seen = [side.call(name, *args) for side, args in zip(self.sides, (first, second), strict=True)]
        self.met["cache events"] += bool(seen[0].get("cache events"))
        self._compare(name, *seen)
        if "raised" in seen[0] and not self.divergence:
            self.ended = f"both raise {seen[0]['raised']} from {name}"
        started, held = self.reference.script.started, self.reference.script.held
        self.loading += [load for load in started if load.between]
        self.holding += held
        self.fresh = tuple(load for load in started if not load.between)
        for side in self.sides:
            side.script.started, side.script.held = [], []
        return not self.over()

    def _compare(self, call: str, reference: Any, ours: Any) -> None:
        if "raised" in reference or "raised" in ours:
            reference, ours = ({"raised": seen.get("raised", "nothing")} for seen in (reference, ours))
        if reference != ours or not _same_order(reference, ours):
            found = tuple(differences(reference, ours))
            if found:
                self.divergence = Divergence(self.applied, call, found)

    def _add(self, add: Add) -> None:
        if add.rid in self.reference.scheduler.requests or add.rid in self.adds:
            return
        shared = self.factory.shared(add)
        self.adds[add.rid] = add
        for side in self.sides:
            side.script.adds[add.rid] = add
            if side.encoder_connector is not None:
                side.encoder_connector.adds[add.rid] = add
            side.requests[add.rid] = self.factory.request(add, shared)
        if add.grammar:
            self.compiling.add(add.rid)
        first, second = (side.requests[add.rid] for side in self.sides)
        self._both("add_request", (first,), (second,))

    def _abort(self, event: Abort) -> None:
        known = [rid for rid in event.rids if rid in self.adds]
        if not known:
            return
        for rid in known:
            if any(load.rid == rid for load in self.loading):
                self.facts.add("aborted during a load")
            if any(rid in flight.tokens for flight in self.flights):
                self.left_in_flight.add(rid)
        ids: Any = known[0] if len(known) == 1 else known
        aborted = self.factory.status.FINISHED_ABORTED
        self._both("finish_requests", (ids, aborted), (ids, aborted))

    def _grammar(self, event: Grammar) -> None:
        if event.rid not in self.compiling:
            return
        self.compiling.discard(event.rid)
        for side in self.sides:
            future: Future[Any] = Future()
            if event.failed:
                future.set_exception(ValueError("no such grammar"))
            else:
                future.set_result(ScriptedGrammar(side.manager, self.adds[event.rid]))
            side.requests[event.rid].structured_output_request.grammar = future

    def _step(self) -> None:
        if len(self.flights) >= self.setup.depth:
            return
        self.steps += 1
        requests = self.reference.scheduler.requests
        known = {rid: r.num_tokens + r.num_output_placeholders for rid, r in requests.items()}
        if not self._both("schedule", (), ()):
            return
        outputs = (self.sides[0].result, self.sides[1].result)
        output: Any = outputs[0]
        tokens: dict[str, int] = dict(output.num_scheduled_tokens)
        drafts = {rid: len(ids) for rid, ids in output.scheduled_spec_decode_tokens.items()}
        start = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        ends = {rid: start[rid] + n - drafts.get(rid, 0) for rid, n in tokens.items()}
        self.flights.append(
            Flight(
                outputs=outputs,
                told=plain(output),
                tokens=tokens,
                drafts=drafts,
                samples=frozenset(rid for rid, end in ends.items() if end >= known.get(rid, 0)),
                prompts=frozenset(
                    rid for rid, end in ends.items() if start[rid] < requests[rid].num_prompt_tokens <= end
                ),
                loads=self.fresh,
                adds={rid: self.adds[rid] for rid in tokens},
            )
        )
        self.met.update(of_step(output, self.adds))
        self.met["several in flight"] += len(self.flights) > 1
        if any(add.grammar for add in self.adds.values()):
            self._both("get_grammar_bitmask", (outputs[0],), (outputs[1],))

    def _answer(self, event: Answer) -> None:
        if not self.flights:
            return
        flight = self.flights.pop(0)
        self._compare("the step in flight", flight.told, plain(flight.outputs[1]))
        if self.over():
            return
        sampled = {rid: self._sampled(flight, rid, event.accept) for rid in flight.tokens}
        report = self._report(flight)
        args = [
            (output, self._reply(flight, {rid: t[:] for rid, t in sampled.items()}, report()))
            for output in flight.outputs
        ]
        if self._both("update_from_output", args[0], args[1]):
            self.met.update(of_outputs(self.reference.result))
            if self.setup.drafts:
                self._propose(flight, event.accept)

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
        sent, received = set(self.sent), set(self.received)
        covered = {load.rid: load for load in (*flight.loads, *self.loading)}
        bad: set[int] = set()
        for rid in [rid for rid in self.broken if rid in covered]:
            blocks = covered[rid].blocks
            bad |= set(blocks[self.broken.pop(rid) % len(blocks) :])
            self.met["load failed"] += 1
        self.met["load reported"] += len(received)
        self.met["send reported"] += len(sent)
        self.sent, self.received = [], []
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

    def _propose(self, flight: Flight, number: int) -> None:
        if self.setup.asynchronous:
            return
        ids = [rid for rid in flight.tokens if rid in flight.samples]
        counts = [(number // 3 + crc32(rid.encode())) % (self.setup.drafts + 1) for rid in ids]
        if ids:
            made = [
                self.factory.drafts(list(ids), [[300 + i for i in range(n)] for n in counts])
                for _ in self.sides
            ]
            self._both("update_draft_token_ids", (made[0],), (made[1],))


def _same_order(reference: Any, ours: Any) -> bool:
    """Whether dictionaries that are equal also have one order."""
    if isinstance(reference, dict):
        return list(reference) == list(ours) and all(
            _same_order(a, b) for a, b in zip(reference.values(), ours.values(), strict=True)
        )
    if isinstance(reference, (list, tuple)):
        return all(_same_order(a, b) for a, b in zip(reference, ours, strict=True))
    return True
