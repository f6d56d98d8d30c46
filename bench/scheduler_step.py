"""What a step costs: a scheduler class against vLLM's own, in one process, interleaved step by step.

    python bench/scheduler_step.py [--scheduler pkg.mod:Class] [--rows decode-16,churn] [--quick] [--memory]

Both schedulers are given equal requests and equal answers; their outputs are compared in every step, so that nobody is fast by
doing something else.  Measured is the CPU time of `schedule` plus `update_from_output`; the worker's answer is made outside.
Rules: the unit is a window of 16 steps, a block's length, so that each window has every request's block boundary once; the
median over windows counts; the collector is off inside windows and runs between them, for both alike; who goes first alternates.
Exit codes: 0 measured, 1 usage, 2 the outputs differ.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.differential.build import Factory
from tests.differential.grammar import Manager
from tests.differential.settings import Add, Setup

from vllm_lifecycle.adapters.vllm.config import Unusable, load_class, vllm_version

STOCK = "vllm.v1.core.sched.scheduler:Scheduler"
STOCK_ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
OURS = "vllm_lifecycle.adapters.vllm.verified:VerifiedScheduler"
OURS_ASYNC = "vllm_lifecycle.adapters.vllm.verified:VerifiedAsyncScheduler"
WINDOW = 16


@dataclass(frozen=True)
class Row:
    """A workload: lengths are ranges of tokens; `live` requests are in the scheduler at any time."""

    title: str
    live: int
    prompt: tuple[int, int]
    answer: tuple[int, int]
    shared: int = 0
    budget: int = 8192
    slots: int = 0
    priorities: int = 1
    grammar: float = 0.0
    connector: bool = False
    log_stats: bool = False
    warm: int = 100

    def setup(self, asynchronous: bool) -> Setup:
        """The configuration; the cache has room for all."""
        longest = self.shared + self.prompt[1] + self.answer[1]
        return Setup(
            block_size=WINDOW,
            blocks=self.live * (-(-longest // WINDOW) + 2) + 64,
            slots=self.slots or self.live,
            budget=max(self.budget, self.slots or self.live),
            model_length=longest + 16,
            policy="priority" if self.priorities > 1 else "fcfs",
            connector=self.connector,
            log_stats=self.log_stats,
            asynchronous=asynchronous,
        )


CHURN = Row("churn, 128 in, 32-96 out, N = 256", 256, (128, 128), (32, 96))
ROWS = {
    **{f"decode-{n}": Row(f"decode, N = {n}", n, (32, 96), (2000, 2000), warm=96) for n in (16, 256, 1024)},
    "churn": CHURN,
    "prefix": Row("prefix hits, 512 shared, N = 256", 256, (32, 32), (32, 96), shared=512),
    "prefill": Row("prefill-heavy, 4096 tokens per step", 160, (512, 1536), (8, 24), budget=4096, slots=128),
    "features": replace(
        CHURN,
        title="churn, with stats, priorities, 10 % structured output, KV connector",
        priorities=3,
        grammar=0.1,
        connector=True,
        log_stats=True,
    ),
}


class Quiet(Manager):
    """A structured output manager that writes nothing down."""

    def accept_tokens(self, request: Any, new_token_ids: list[int]) -> bool:
        """Every token is right."""
        return True


class AnyToken:
    """A compiled grammar that takes every token."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Every token is right."""
        return True


class Batch:
    """The order in which a model runner keeps its requests: one that leaves is replaced by the last one."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.place: dict[str, int] = {}

    def update(self, output: Any) -> None:
        """Take note of who left and who came."""
        for rid in [*output.finished_req_ids, *(r for r in self.ids if r not in output.num_scheduled_tokens)]:
            place = self.place.pop(rid, None)
            if place is not None:
                last = self.ids.pop()
                if last != rid:
                    self.ids[place] = last
                    self.place[last] = place
        for rid in output.num_scheduled_tokens:
            if rid not in self.place:
                self.place[rid] = len(self.ids)
                self.ids.append(rid)


class Race:
    """Schedulers of one row, fed alike."""

    FACTORY = Factory

    def __init__(self, row: Row, classes: Sequence[type[Any]], asynchronous: bool) -> None:
        self.row = row
        setup = row.setup(asynchronous)
        self.factory = self.FACTORY(setup, "bench.idle_connector:IdleConnector")
        self.managers = [Quiet() for _ in classes]
        self.schedulers = [
            self.factory.scheduler(cls, m)[0] for cls, m in zip(classes, self.managers, strict=True)
        ]
        self.depth = setup.depth
        self.rng = Random(row.title)
        self.count = self.live = self.turn = 0
        self.flights: deque[list[tuple[Any, Any]]] = deque()
        self.batches = [Batch() for _ in classes]
        self.known: dict[str, int] = {}
        self.spent = [0] * len(classes)
        self.tokens = 0

    def fill(self) -> None:
        """Let requests arrive until as many are there as the row wants."""
        while self.live < self.row.live:
            self.live += 1
            self.count += 1
            row, rng = self.row, self.rng
            add = Add(
                f"r{self.count}",
                own=rng.randint(*row.prompt),
                shared=row.shared,
                answer=rng.randint(*row.answer),
                priority=rng.randrange(row.priorities),
                arrival=self.count,
                grammar=rng.random() < row.grammar,
            )
            shared = self.factory.shared(add)
            self.known[add.rid] = add.own + add.shared
            for scheduler in self.schedulers:
                request = self.factory.request(add, shared)
                if add.grammar:
                    request.structured_output_request.grammar = AnyToken()
                scheduler.add_request(request)

    def step(self) -> None:
        """One step of every scheduler; their CPU time in nanoseconds is added to `spent`."""
        self.fill()
        self.turn += 1
        order = range(len(self.schedulers))
        order = order if self.turn % 2 else order[::-1]
        made: dict[int, Any] = {}
        for i in order:
            schedule = self.schedulers[i].schedule
            start = time.process_time_ns()
            made[i] = schedule()
            self.spent[i] += time.process_time_ns() - start
        outputs = [made[i] for i in range(len(self.schedulers))]
        if any(o.num_scheduled_tokens != outputs[0].num_scheduled_tokens for o in outputs):
            raise Differs(f"{self.row.title}: step {self.turn} schedules different tokens")
        self.tokens += outputs[0].total_num_scheduled_tokens
        self.flights.append(list(zip(outputs, self._answers(outputs), strict=True)))
        if len(self.flights) < self.depth:
            return
        pairs = self.flights.popleft()
        for i in order:
            update = self.schedulers[i].update_from_output
            start = time.process_time_ns()
            made[i] = update(*pairs[i])
            self.spent[i] += time.process_time_ns() - start
        ended = [sum(one.finish_reason is not None for one in _outputs(made[i])) for i in made]
        if len(set(ended)) > 1:
            raise Differs(f"{self.row.title}: step {self.turn} finishes different numbers of requests")
        self.live -= ended[0]

    def _answers(self, outputs: list[Any]) -> list[Any]:
        """The worker's answers, in the order of its batch; a prompt that is not complete samples nothing."""
        first = outputs[0]
        start = {new.req_id: new.num_computed_tokens for new in first.scheduled_new_reqs}
        cached = first.scheduled_cached_reqs
        start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        samples = {rid for rid, n in first.num_scheduled_tokens.items() if start[rid] + n >= self.known[rid]}
        answers = []
        for output, batch in zip(outputs, self.batches, strict=True):
            batch.update(output)
            token = 100 + self.turn % 200
            answers.append(
                self.factory.answer(
                    req_ids=list(batch.ids),
                    req_id_to_index=dict(batch.place),
                    sampled_token_ids=[[token] if rid in samples else [] for rid in batch.ids],
                    logprobs=None,
                    prompt_logprobs_dict={},
                    pooler_output=None,
                )
            )
        return answers

    def windows(self, count: int) -> Iterator[list[int]]:
        """CPU nanoseconds of each scheduler, window by window."""
        for _ in range(self.row.warm):
            self.step()
        self.tokens = 0
        for _ in range(count):
            self.fill()
            gc.collect()
            gc.disable()
            self.spent = [0] * len(self.schedulers)
            for _ in range(WINDOW):
                self.step()
            gc.enable()
            yield self.spent


class Differs(Exception):
    """The schedulers do different things; their times cannot be compared."""


def _outputs(groups: Any) -> list[Any]:
    return [one for group in groups.values() for one in group.outputs]


def race(
    row: Row, classes: Sequence[type[Any]], count: int, asynchronous: bool, kind: type[Race] = Race
) -> tuple[float, list[float]]:
    """Tokens per step, and microseconds per step of each class: the median over windows."""
    gc.collect()
    gc.freeze()
    runner = kind(row, classes, asynchronous)
    measured = list(runner.windows(count))
    gc.unfreeze()
    return runner.tokens / count / WINDOW, [
        median(w[i] for w in measured) / WINDOW / 1000 for i in range(len(classes))
    ]


def memory(cls: type[Any], live: int, asynchronous: bool) -> tuple[float, float]:
    """Bytes per running request, its `Request` included, after 64 steps of decode; and bytes of the empty scheduler."""
    row = replace(ROWS["decode-256"], live=live)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    runner = Race(row, (cls,), asynchronous)
    gc.collect()
    empty = tracemalloc.get_traced_memory()[0]
    for _ in range(64):
        runner.step()
    while runner.flights:  # what is in flight belongs to the engine
        runner.schedulers[0].update_from_output(*runner.flights.popleft()[0])
    runner.batches.clear()
    runner.known.clear()
    gc.collect()
    full = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (full - empty) / live, float(empty - before)


def arguments(parser: argparse.ArgumentParser, rows: Mapping[str, Row]) -> argparse.Namespace:
    """The command line, with which of the rows to measure, and whether shortly."""
    parser.add_argument("--rows", default=",".join(rows), help=f"comma-separated, of {', '.join(rows)}")
    parser.add_argument("--quick", action="store_true", help="few windows: for a first look")
    options = parser.parse_args()
    options.rows = options.rows.split(",")
    unknown = [name for name in options.rows if name not in rows]
    if unknown:
        parser.error(f"no row {unknown[0]!r}: choose of {', '.join(rows)}")
    return options


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scheduler", default="", metavar="pkg.mod:Class")
    parser.add_argument("--memory", action="store_true", help="also bytes per running request")
    parser.add_argument(
        "--asynchronous", action="store_true", help="asynchronous schedulers, two steps in flight"
    )
    return arguments(parser, ROWS)


def table(
    names: Sequence[str], rows: Mapping[str, Row], measure: Callable[[Row, int], Any], quick: bool
) -> None:
    """Measure rows and print how their times compare."""
    print(f"{'row':67} {'tokens':>8} {'vLLM':>9} {'ours':>9} {'ratio':>7}")
    print(f"{'':67} {'per step':>8} {'us/step':>9} {'us/step':>9}")
    for name in names:
        row = rows[name]
        count = 8 if quick else 20 if row.live >= 1024 else 40
        tokens, (theirs, own) = measure(row, count)
        print(f"{row.title:67} {tokens:8.0f} {theirs:9.1f} {own:9.1f} {theirs / own:7.2f}", flush=True)


def main() -> int:
    """Measure and print the table; the exit code."""
    options = _arguments()
    logging.disable(logging.CRITICAL)
    stock, ours = (STOCK_ASYNC, OURS_ASYNC) if options.asynchronous else (STOCK, OURS)
    classes = [load_class(stock), load_class(options.scheduler or ours)]
    print(
        f"vLLM {vllm_version()}, {classes[0].__name__} against {classes[1].__module__}:{classes[1].__name__}"
    )
    table(
        options.rows, ROWS, lambda row, count: race(row, classes, count, options.asynchronous), options.quick
    )
    if options.memory:
        (one, empty), (other, other_empty) = (memory(cls, 256, options.asynchronous) for cls in classes)
        print(f"{'bytes per running request':66} {one:10.0f} {other:10.0f} {one / other:7.2f}")
        print(
            f"{'bytes of the empty scheduler':66} {empty:10.0f} {other_empty:10.0f} {empty / other_empty:7.2f}"
        )
    return 0


def run(main: Callable[[], int]) -> None:
    """The program: ends the process with its exit code; what cannot be measured is one line."""
    try:
        sys.exit(main())
    except Unusable as why:
        print(f"error: {why}", file=sys.stderr)
        sys.exit(1)
    except Differs as why:
        print(f"error: {why}: hold them against each other with tests.differential first", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    run(main)
