"""Whole passes of the scheduling loop, under a policy that decides at random, each kernel operation checked as it happens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.refinement.lockstep import Lockstep
from tests.refinement.moves import Driver, Move, found_in

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.queue import KeyQueue, Queue
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.policies.policy import Policy
from vllm_lifecycle.statemachine.scheduling.loop import Scheduling
from vllm_lifecycle.statemachine.scheduling.rules import Limits, Rules

IN_A_PASS = ("grammar_ready", "admit", "start_receive", "promote", "resume_running", "preempt", "finish")

HIT = {"admit": 1, "start_receive": 0}
"""Where the look-up's result stands among the arguments."""


class Watched(Kernel):
    """A kernel whose operations within a pass are matched with the specification one by one."""

    twin: Lockstep
    _busy = False


def _watch(name: str) -> Any:
    plain = getattr(Kernel, name)

    def operation(self: Watched, seq: Seq, *args: Any, **named: Any) -> Any:
        if self._busy or self.twin.building is None:
            return plain(self, seq, *args, **named)
        self._busy = True
        try:
            fixed: dict[str, Any] = {"hits": found_in(args[HIT[name]])} if name in HIT else {}
            answer = self.twin.do(name, lambda: plain(self, seq, *args, **named), r=seq.id, **fixed)
        finally:
            self._busy = False
        if isinstance(answer, Refused):
            raise answer
        return answer

    return operation


for _name in IN_A_PASS:
    setattr(Watched, _name, _watch(_name))


class Random(Policy):
    """Any order of waiting requests, any victim."""

    name = "random"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def queue(self) -> Queue:
        return KeyQueue(lambda seq: self.rng.random())

    def victim(self, running: Sequence[Seq], requester: Seq) -> Seq:
        return self.rng.choice(list(running))


class World:
    """A connector that loads at random, grammars that compile at random, and no encoder."""

    connected = True

    def __init__(self, rng: random.Random, features: set[str]) -> None:
        self.rng = rng
        self.loads = "load" in features

    def match(self, seq: Seq, local: int) -> tuple[int | None, bool]:
        if not self.loads or self.rng.random() < 0.6:
            return self.rng.choice([0, 0, None]), False
        return len(seq.tokens) - local, True

    def grammar(self, seq: Seq) -> str:
        return self.rng.choice(["ready", "pending", "failed"])

    def has_encoder(self, seq: Seq) -> bool:
        return False

    def frees_pending(self) -> bool:
        return False

    def encoder_there(self, seq: Seq, computed: int) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class Engine(Driver):
    """Clients, workers and the connector act at random between calls; passes are the loop's."""

    def __init__(self, spec: Program, rng: random.Random) -> None:
        self.rng = rng
        policy = Random(rng)
        super().__init__(Lockstep(spec, Watched, policy.queue()))
        kernel = self.twin.kernel
        assert isinstance(kernel, Watched)
        kernel.twin = self.twin
        self.twin.loose = True
        limits = Limits(tokens=4, model_len=8, threshold=rng.choice([0, 1]))
        self.loop = Scheduling(kernel, policy, Rules(), limits, World(rng, self.features))

    def _pass(self) -> Iterator[Move]:
        yield "plan", self._plan

    def _plan(self) -> None:
        plan = self.loop.plan()
        self.twin.rows = plan.rows_of(self.twin.kernel.seqs)
        self.dispatch()

    def run(self, length: int) -> None:
        """So many random moves."""
        for _ in range(length):
            moves = list(self.moves())
            moves[self.rng.randrange(len(moves))][1]()
