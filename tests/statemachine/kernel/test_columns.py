"""A scheduler with lockstep decoders does what one without does: same steps, outputs and blocks, in the same order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_lifecycle.spec.lifecycles.vocabulary import GONE, Status
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step
from vllm_lifecycle.statemachine.kernel.store import V0_13_0, V0_32_0
from vllm_lifecycle.statemachine.policies.fcfs import FCFS
from vllm_lifecycle.statemachine.policies.priority import Priority
from vllm_lifecycle.statemachine.scheduling.loop import Scheduling
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import Limits, Rules

BLOCK, MODEL_LEN, SLOTS = 4, 40, 6
STOP = 7
Event = tuple[str, int, int, int]


class Outside:
    """Nothing is attached to the scheduler."""

    connected = False

    def frees_pending(self) -> bool:
        return False

    def has_encoder(self, seq: Seq) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class Events:
    """What happened to the prefix cache."""

    def __init__(self) -> None:
        self.list: list[Any] = []

    def stored(self, seq: Seq, first: int, last: int) -> None:
        self.list.append(("stored", seq.id, first, last, list(seq.hashes[first:last])))

    def removed(self, key: Hashable) -> None:
        self.list.append(("removed", key))

    def cleared(self) -> None:
        self.list.append(("cleared",))

    def take(self) -> list[Any]:
        return self.list


class Plain:
    """A small engine around the kernel: requests come and go, steps are planned, and answered in their order."""

    def __init__(
        self, ahead: bool, late: bool, ranked: bool, blocks: int, caching: bool, heard: bool, budget: int = 12
    ) -> None:
        self.ahead = ahead
        self.events = Events()
        store = PagedStore(
            blocks,
            BLOCK,
            MODEL_LEN,
            V0_32_0 if late else V0_13_0,
            caching=caching,
            listener=self.events if heard else None,
        )
        policy = Priority() if ranked else FCFS()
        self.kernel = Kernel(store, policy.queue(), slots=SLOTS, clock=lambda: 0.0)
        self.store = store
        self.setup()
        limits = Limits(tokens=budget, model_len=MODEL_LEN)
        rules = Rules(asynchronous=ahead)
        self.scheduling = Scheduling(self.kernel, policy, rules, limits, Outside())
        self.flying: list[tuple[Step, list[str]]] = []
        self.log: list[Any] = []
        self.odd = 0

    def setup(self) -> None:
        """For those who add to the kernel."""

    def hash(self, full: Iterable[Seq], size: int) -> None:
        for seq in full:
            before = seq.hashes[-1] if seq.hashes else ()
            seq.hashes.append((*before, *seq.tokens[-size:]))
            assert len(seq.hashes[-1]) == len(seq.hashes) * BLOCK

    def keys(self, seq: Seq) -> None:
        for end in range((len(seq.hashes) + 1) * BLOCK, len(seq.tokens) + 1, BLOCK):
            seq.hashes.append(tuple(seq.tokens[:end]))

    def add(self, name: str, prompt: int, limit: int, kind: int) -> None:
        if name in self.kernel.seqs:
            return
        seq = Seq(name, (kind, []), [kind % 2] * prompt, [], [], limit=limit, priority=kind, arrival=prompt)
        self.keys(seq)
        self.kernel.add(seq)

    def abort(self, at: int) -> None:
        live = [seq for seq in self.kernel.seqs.values() if seq.status not in GONE]
        if live:
            self.kernel.finish(live[at % len(live)], Status.FINISHED_ABORTED)

    def preempt(self, at: int) -> None:
        """As a reset does."""
        running = self.kernel.running
        if running:
            self.kernel.preempt(running[at % len(running)], deliver=at % 2 == 0)

    def plan(self, most: int) -> None:
        if len(self.flying) > most:
            return
        plan = self.scheduling.plan()
        shown = self.show(plan)
        step = self.kernel.dispatch(plan.rows_of(self.kernel.seqs), plan.members)
        self.scheduling.settle(plan)
        self.flying.append((step, list(plan.tokens)))
        self.log.append(("plan", list(plan.tokens.items()), shown, [s.id for s in plan.preempted]))

    def show(self, plan: Plan) -> Any:
        """Computed tokens, outputs and new blocks of everybody in the step."""
        seqs = self.kernel.seqs
        return [
            (id, seqs[id].computed, len(seqs[id].outputs) + seqs[id].placeholders, list(plan.fresh[id][0]))
            for id in plan.tokens
        ]

    def answer(self, dice: int) -> None:
        if not self.flying:
            return
        step, ids = self.flying.pop(0)
        random = Random(dice)
        awaited = {row.seq.id: row.awaited for row in step.rows} | dict.fromkeys(ids[: len(step.lockstep)], 1)
        order = sorted(ids, key=lambda id: (random.random(), id)) if dice % 2 else ids
        places = {id: place for place, id in enumerate(order)}
        drawn = {id: [random.randrange(STOP + 1)] if random.random() < 0.97 else [] for id in sorted(ids)}
        sampled = [drawn[id] if awaited[id] else [] for id in order]
        self.kernel.receive_output(step)
        self.log.append(("answer", self.credit(step, places, sampled)))

    def credit(self, step: Step, places: dict[str, int], sampled: list[list[int]]) -> list[Any]:
        return [out for row in step.rows for out in self.row(row, sampled[places[row.seq.id]])]

    def row(self, row: Row, tokens: list[int]) -> list[Any]:
        """A row goes the general way; what its client hears."""
        seq = row.seq
        worth = self.kernel.close_row(row)
        if worth == "dropped":
            return []
        current = worth == "current"
        if current and row.awaited:
            seq.computed -= row.awaited - len(tokens)
            if self.ahead:
                seq.placeholders -= row.awaited
        seq.tokens += tokens
        seq.outputs += tokens
        self.keys(seq)
        if current and self.ahead and tokens:
            self.store.cache(seq, seq.computed - seq.placeholders)
        reason = None
        if tokens:
            if self.stops(seq) & set(tokens):
                reason = Status.FINISHED_STOPPED
            elif len(seq.outputs) >= seq.limit or len(seq.tokens) >= MODEL_LEN:
                reason = Status.FINISHED_LENGTH_CAPPED
            if reason is not None:
                self.kernel.finish(seq, reason)
        return [(seq.id, list(tokens), reason)] if tokens else []

    def stops(self, seq: Seq) -> frozenset[int]:
        return frozenset({STOP}) if seq.payload[0] % 3 else frozenset()

    def state(self) -> Any:
        """All that could differ."""
        kernel, store = self.kernel, self.store
        if kernel.columns is not None:
            kernel.columns.flush()
        seqs = {
            seq.id: (
                seq.status,
                seq.computed_now,
                seq.awaited_now,
                list(seq.tokens),
                list(seq.hashes),
                list(seq.table),
                seq.cached_blocks,
            )
            for seq in kernel.seqs.values()
        }
        return (
            seqs,
            [seq.id for seq in kernel.running],
            [seq.id for seq in kernel.waiting],
            list(store.pool.queue),
            list(store.prefixes.keys),
            dict(store.prefixes.first),
            list(self.events.list),
        )


class Lockstep(Plain):
    """The same with lockstep decoders."""

    def setup(self) -> None:
        self.kernel.columns = self.columns = Columns(
            self.store, self.kernel.steps, self, ahead=self.ahead, model_len=MODEL_LEN
        )
        self.rows = 0

    def fits(self, seq: Seq) -> bool:
        return not seq.payload[1]

    def special(self, seq: Seq) -> bool:
        return bool(seq.payload[0] == 2)

    def constants(self, seq: Seq) -> tuple[Any, ...]:
        return seq.id, seq.prompt

    def show(self, plan: Plan) -> Any:
        served = plan.lockstep
        shown = []
        if served is not None:
            self.rows += len(served.computed)
            lanes = served.lanes
            assert lanes.constants[0] == lanes.ids
            assert lanes.specials == [n for n, seq in enumerate(lanes.seqs) if self.special(seq)]
            for place, (id, computed, outputs) in enumerate(
                zip(lanes.ids, served.computed, served.shown, strict=True)
            ):
                shown.append((id, computed, outputs, list(served.fresh.get(place, ()))))
        others = list(plan.tokens)[len(shown) :]
        seqs = self.kernel.seqs
        for id in others:
            seq = seqs[id]
            shown.append((id, seq.computed, len(seq.outputs) + seq.placeholders, list(plan.fresh[id][0])))
        return shown

    def credit(self, step: Step, places: dict[str, int], sampled: list[list[int]]) -> list[Any]:
        lanes, given, leavers = self.columns.credit(step, places, sampled)
        apart = set(leavers)
        usual = {
            seq: [(seq.id, list(tokens), None)]
            for place, (seq, tokens) in enumerate(zip(lanes.seqs, given, strict=True))
            if place not in apart
        }
        rows = [self.columns.departed(step).get(seq) or Row(seq, seq.run, 1, 0, 1) for seq in step.lockstep]
        outs: list[Any] = []
        for row in [*rows, *step.rows]:
            done = usual.get(row.seq)
            outs += self.row(row, sampled[places[row.seq.id]]) if done is None else done
        return outs


EVENTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 20), st.integers(1, 24), st.integers(0, 3)),
    st.tuples(st.just("abort"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("preempt"), st.integers(0, 9), st.just(0), st.just(0)),
    st.tuples(st.just("steps"), st.integers(1, 12), st.integers(0, 999), st.just(0)),
    st.tuples(st.just("plan"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("answer"), st.integers(0, 999), st.just(0), st.just(0)),
)


def play(engine: Plain, events: list[Event], after: Any) -> None:
    depth = 1 if engine.ahead else 0
    for number, (what, a, b, c) in enumerate(events):
        match what:
            case "add":
                engine.add(f"r{number}", a, b, c)
            case "abort":
                engine.abort(a)
            case "preempt":
                engine.preempt(a)
            case "plan":
                engine.plan(1)
            case "answer":
                engine.answer(a)
            case "steps":
                for k in range(a):
                    engine.plan(depth)
                    engine.answer(b + k)
        after(number)


def compare(events: list[Event], **setup: Any) -> int:
    """Both engines are shown the same events; the number of rows that were served in lockstep."""
    plain, lockstep = Plain(**setup), Lockstep(**setup)
    states: list[Any] = []
    play(plain, events, lambda number: states.append((list(plain.log), plain.state())))

    def same(number: int) -> None:
        log, state = states[number]
        assert lockstep.log == log
        assert lockstep.state() == state

    play(lockstep, events, same)
    return lockstep.rows


@given(
    events=st.lists(EVENTS, min_size=5, max_size=40),
    ahead=st.booleans(),
    late=st.booleans(),
    ranked=st.booleans(),
    blocks=st.sampled_from([12, 24, 60]),
    caching=st.sampled_from([True, True, False]),
    heard=st.booleans(),
    budget=st.sampled_from([4, 12, 12]),
)
@settings(max_examples=300)
def test_the_same_as_without(events: list[Event], **setup: Any) -> None:
    compare(events, **setup)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 24, 60])
def test_long_runs(ahead: bool, blocks: int) -> None:
    """Random traffic with few surprises, so that nearly everybody is served in lockstep for most of his life."""
    rows = 0
    for seed in range(8):
        random = Random(seed)
        events: list[Event] = []
        for _ in range(60):
            events += [("add", random.randrange(1, 12), random.randrange(4, 28), random.randrange(4))] * (
                random.random() < 0.6
            )
            events.append(("steps", random.randrange(1, 8), random.randrange(999), 0))
            if random.random() < 0.1:
                events.append((random.choice(("abort", "preempt", "plan")), random.randrange(9), 0, 0))
        rows += compare(
            events,
            ahead=ahead,
            late=bool(seed % 2),
            ranked=seed % 4 > 1,
            blocks=blocks,
            caching=True,
            heard=seed % 3 == 0,
        )
    assert rows > 200, rows
