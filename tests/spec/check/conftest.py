"""Small specifications and a plain Python search, against which the packed engine is held."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.build import Expr, Individual, SetOf, State, exists, forall, ite, one_if
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.machine import Fairness, Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort


class Status(Enum):
    FREED = "FREED"
    WAITING = "WAITING"
    RUNNING = "RUNNING"


class Colour(Enum):
    RED = "RED"
    GREEN = "GREEN"
    BLUE = "BLUE"


class Request(Individual):
    """Individuals of the examples."""


class Block(Individual):
    """Individuals of the examples."""


def pool(*, leak: bool = False, fair: bool = True) -> Machine:
    """Requests that take blocks from a pool; with `leak`, finishing frees the blocks of others too."""
    spec = Spec("pool")
    spec.var("status", Request, to=Status, init=Status.FREED, module="queue")
    spec.var("table", Request, Block, module="custody")
    spec.var("free", Block, init=True, module="custody")

    @spec.action(by="client")
    def add_request(s: State, r: Request) -> None:
        s.require(s.status[r] == Status.FREED)
        s.status[r] = Status.WAITING

    @spec.action(by="scheduler", fair=fair)
    def admit_request(s: State, r: Request, hits: SetOf[Block]) -> None:
        s.require(s.status[r] == Status.WAITING)
        s.require(forall(Block, lambda b: hits[b] >> s.free[b]))
        s.status[r] = Status.RUNNING
        s.table[r, :] = lambda b: hits[b]
        s.free[:] = lambda b: s.free[b] & ~hits[b]

    @spec.action(by="scheduler", fair=fair)
    def finish_request(s: State, r: Request) -> None:
        s.require(s.status[r] == Status.RUNNING)
        s.status[r] = Status.FREED
        s.table[r, :] = False
        if leak:
            s.free[:] = True
        else:
            s.free[:] = lambda b: ~exists(Request, lambda x: s.table[x, b])

    @spec.safety(ids=("P1",))
    def a_free_block_is_in_no_table(s: State, b: Block, r: Request) -> Implication:
        return when(s.free[b]).then(~s.table[r, b])

    @spec.step()
    def a_running_request_keeps_its_blocks(s: State, b: Block, r: Request) -> Implication:
        return when(s.old.table[r, b], s.status[r] == Status.RUNNING).then(s.table[r, b])

    @spec.progress()
    def a_waiting_request_is_freed(s: State, r: Request) -> Implication:
        return when(s.status[r] == Status.WAITING).then(s.status[r] == Status.FREED)

    spec.lifecycle(
        "request",
        "status",
        {
            Status.FREED: {Status.WAITING},
            Status.WAITING: {Status.RUNNING},
            Status.RUNNING: {Status.FREED},
        },
    )
    return spec.seal()


class RandomSpec:
    """A specification made at random from a seed: booleans, an enum, a relation, a counter, sets as parameters."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.spec = Spec(f"random{seed}")
        self.spec.var("flag", Request, init=self.random.random() < 0.3, module="m")
        self.spec.var("rel", Request, Block, module="m")
        self.spec.var("mode", Block, to=Colour, init=Colour.RED, module="m")
        self.spec.var("count", to=IntSort(0, 2), init=0, module="m")
        self.spec.var("phase", to=Colour, init=Colour.GREEN, module="m")

    def truth(self, s: Any, requests: list[Expr], blocks: list[Expr], sets: list[Any], depth: int) -> Expr:
        """A condition over the given individuals."""
        pick = self.random.choice
        options: list[Callable[[], Expr]] = [
            lambda: s.phase != pick(list(Colour)),
            lambda: s.count <= pick((0, 1)),
        ]
        if requests:
            options.append(lambda: s.flag[pick(requests)])
        if blocks:
            options.append(lambda: s.mode[pick(blocks)] != pick(list(Colour)))
            options.append(lambda: s.mode[pick(blocks)].is_in(*self.random.sample(list(Colour), 2)))
            if sets:
                options.append(lambda: pick(sets)[pick(blocks)])
        if requests and blocks:
            options.append(lambda: s.rel[pick(requests), pick(blocks)])
        if depth:
            more = depth - 1

            def inner() -> Expr:
                return self.truth(s, requests, blocks, sets, more)

            options += [
                lambda: ~inner(),
                lambda: inner() & inner(),
                lambda: inner() | inner(),
                lambda: exists(Request, lambda x: self.truth(s, [*requests, x], blocks, sets, more)),
                lambda: forall(Block, lambda y: self.truth(s, requests, [*blocks, y], sets, more)),
                lambda: ite(inner(), inner(), inner()),
            ]
        return pick(options)()

    def change(self, s: Any, requests: list[Expr], blocks: list[Expr], sets: list[Any]) -> None:
        """Some assignments."""
        pick = self.random.choice
        for name in self.random.sample(("flag", "rel", "mode", "count", "phase"), self.random.randint(1, 3)):
            if name == "flag" and requests and self.random.random() < 0.5:
                s.flag[pick(requests)] = self.truth(s, requests, blocks, sets, 1)
            elif name == "flag":
                s.flag[:] = lambda x: self.truth(s, [*requests, x], blocks, sets, 1)
            elif name == "rel" and requests and self.random.random() < 0.6:
                s.rel[pick(requests), :] = lambda y: self.truth(s, requests, [*blocks, y], sets, 1)
            elif name == "rel":
                s.rel[:, :] = lambda x, y: self.truth(s, [*requests, x], [*blocks, y], sets, 1)
            elif name == "mode":
                s.mode[:] = lambda y: ite(
                    self.truth(s, requests, [*blocks, y], sets, 1), pick(list(Colour)), s.mode[y]
                )
            elif name == "count":
                s.count = pick(
                    (
                        ite(s.count == 2, 0, s.count + 1),
                        s.count + one_if((s.count <= 1) & self.truth(s, requests, blocks, sets, 1)),
                        s.count - one_if(s.count >= 1),
                        s.count + one_if(self.truth(s, requests, blocks, sets, 1)),
                    )
                )
            else:
                s.phase = ite(self.truth(s, requests, blocks, sets, 1), pick(list(Colour)), s.phase)

    def machine(self) -> Machine:
        """The specification; DefinitionError when chance made one that the language rejects."""
        fair = self.random.choice
        for number in range(self.random.randint(4, 7)):
            level = fair((Fairness.NONE, Fairness.WEAK, Fairness.WEAK, Fairness.STRONG))
            self.spec.action(by="chance", fair=level)(self._action(number))

        def never(s: State, r: Request, b: Block) -> Implication:
            return when(self.truth(s, [r], [b], [], 1)).then(self.truth(s, [r], [b], [], 2))

        def no_step(s: State, r: Request, b: Block) -> Implication:
            return when(self.truth(s.old, [r], [b], [], 1)).then(self.truth(s, [r], [b], [], 2))

        def sooner_or_later(s: State, r: Request) -> Implication:
            return when(self.truth(s, [r], [], [], 1)).then(self.truth(s, [r], [], [], 1))

        self.spec.safety()(never)
        self.spec.step()(no_step)
        self.spec.progress()(sooner_or_later)
        return self.spec.seal()

    def _action(self, number: int) -> Callable[..., None]:
        def with_set(s: State, r: Request, bs: SetOf[Block]) -> None:
            s.require(self.truth(s, [r], [], [bs], self.random.choice((0, 1, 2))))
            self.change(s, [r], [], [bs])

        def with_block(s: State, r: Request, b: Block) -> None:
            s.require(self.truth(s, [r], [b], [], self.random.choice((0, 1, 2))))
            self.change(s, [r], [b], [])

        def plain(s: State) -> None:
            s.require(self.truth(s, [], [], [], self.random.choice((0, 1))))
            self.change(s, [], [], [])

        function = self.random.choice((with_set, with_block, plain))
        function.__name__ = f"act{number}"
        return function


@dataclass
class Naive:
    """A plain breadth-first search with the reference evaluator."""

    states: list[dict[ev.Cell, Any]]
    depth_of: list[int]
    edges: list[tuple[int, str, dict[str, Any], int]]
    overflow: bool = False

    @property
    def depth(self) -> int:
        return max(self.depth_of)


def naive_search(machine: Machine, domain: ev.Domain, most: int = 3000) -> Naive | None:
    """All states and steps; None when there are more than `most` states."""
    start = ev.initial(machine, domain)
    number = {tuple(start.values()): 0}
    result = Naive([start], [0], [])
    here = 0
    while here < len(result.states):
        state = result.states[here]
        try:
            following = list(ev.successors(machine, state, domain))
        except DefinitionError:
            result.overflow = True
            return result
        for action, binding, after in following:
            key = tuple(after[c] for c in start)
            if key not in number:
                number[key] = len(result.states)
                result.states.append(after)
                result.depth_of.append(result.depth_of[here] + 1)
                if len(number) > most:
                    return None
            result.edges.append((here, action.name, binding, number[key]))
        here += 1
    return result


@pytest.fixture
def make_pool() -> Callable[..., Machine]:
    """The pool example."""
    return pool


@pytest.fixture
def random_machine() -> Callable[[int], Machine | None]:
    """A random machine by seed; None when the language rejects it."""

    def make(seed: int) -> Machine | None:
        try:
            return RandomSpec(seed).machine()
        except DefinitionError:
            return None

    return make


@pytest.fixture
def search_naively() -> Callable[..., Naive | None]:
    """The plain search."""
    return naive_search


def domain(requests: int, blocks: int, **constants: int) -> ev.Domain:
    """Numbered requests and blocks."""
    return ev.Domain({"Request": tuple(range(requests)), "Block": tuple(range(blocks))}, constants)


@pytest.fixture
def make_domain() -> Callable[..., ev.Domain]:
    """A domain by sizes."""
    return domain
