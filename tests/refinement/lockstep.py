"""Kernel and specification side by side: after each operation of the kernel, the specification must have a matching action.

`Lockstep` wraps a kernel. An operation that the kernel performs must be one of the actions that `CORRESPONDS` names for it,
enabled in the specification's state, followed at most by bookkeeping of the same call (blocks entered in the prefix cache, an
id set free), and lead to a state that agrees with the kernel on everything observed. One that it refuses must have changed
nothing. What only the specification has (ghosts, the phase of a call) follows from the action.

The kernel may find fewer blocks in its prefix cache than the specification: forgetting is always safe, for nothing requires a
block to be found. So `cached` of the kernel is a part of the specification's; everything else is equal.

Each token has a block of its own here, and equal prefixes have equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.packed import Packed
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import OVER, Kind, Row, Status, Transfer
from vllm_lifecycle.statemachine.kernel.correspondence import CORRESPONDS
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.queue import ArrivalQueue, Queue
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step
from vllm_lifecycle.statemachine.kernel.store import V0_13_0

MODULES = (
    "engine", "queue", "membership", "order", "steps", "epochs", "custody", "pool", "prefix", "hooks", "slots", "handoff",
)  # fmt: skip
FEATURES = ("core", "load", "load_failure", "send", "preemption", "prefix", "grammar", "reset")
NO_ROOM = ("admit", "start_receive", "resume_running")
FOLLOW = ("cache_block", "free_request")
"""Bookkeeping that a call does after its main action."""


def machine(*features: str, order: bool = True) -> Any:
    """The part of the specification that the kernel is held to; `order`: the waiting queue is first come, first served.

    With hand-offs, notices and counts of hook calls are left out: they are held to in the other scopes.
    """
    without = ({"hooks"} if "handoff" in features else set()) | (set() if order else {"order"})
    return SYSTEM.project(m for m in MODULES if m not in without).with_features(features or FEATURES)


def program(requests: int, blocks: int, steps: int, *features: str, order: bool = True) -> Program:
    """The specification at one size."""
    individuals = {
        "Request": tuple(f"r{i}" for i in range(requests)),
        "Block": tuple(range(1, blocks + 1)),
        "Step": tuple(range(steps)),
    }
    stage = int("handoff" in features)
    constants = {
        "max_tokens": 3, "max_num_seqs": requests, "pool_blocks": blocks, "encoder_budget": 1, "max_want": 1,
        "max_requests": requests, "kv_connector": 1, "handoff_stage": stage,
    }  # fmt: skip
    return Program(
        machine(*features, order=order),
        Domain(individuals, constants, {"Status": (Status.FINISHED_STOPPED,)}),
    )


class Mismatch(AssertionError):
    """The kernel did what the specification does not allow, or changed something while refusing."""


class Lockstep:
    """A kernel and the specification's state, moved together."""

    def __init__(self, spec: Program, kernel: type[Kernel] = Kernel, queue: Queue | None = None) -> None:
        self.spec = spec
        self.state: Packed = spec.initial
        self.requests = tuple(str(r) for r in spec.domain.individuals["Request"])
        self.blocks: tuple[int, ...] = tuple(range(1, len(spec.domain.individuals["Block"]) + 1))
        self.slots = tuple(range(len(spec.domain.individuals["Step"])))
        self.hold = False
        store = PagedStore(len(self.blocks) + 1, 1, 8, V0_13_0, caching="prefix" in spec.machine.features)
        self.store = store
        self.kernel = kernel(
            store, ArrivalQueue() if queue is None else queue, slots=len(self.requests), finishing=self.answer
        )
        self.flights: dict[int, Step] = {}
        self.building: int | None = None
        self.loose = False
        self._observed = self._places()
        self._cached = frozenset(i for cell, i in self._observed.items() if cell[0] == "cached")

    def answer(self, seq: Seq) -> tuple[bool, None]:
        """The connector's answer when a request ends: what the driver chose, where there is something to send."""
        return self.hold and any(map(len, self.kernel.store.table(seq))), None

    # what both know

    def _places(self) -> dict[tuple[str, tuple[Any, ...]], int]:
        return {cell: i for i, cell in enumerate(self.spec.layout.cells)}

    def observed(self) -> dict[int, int]:
        """The kernel's state as cells of the specification: place in the packed state -> number."""
        kernel, code = self.kernel, self.spec.layout.code
        seqs = {r: kernel.seqs.get(r) for r in self.requests}
        found: dict[tuple[str, tuple[Any, ...]], Any] = {}
        waiting, running = list(kernel.waiting), list(kernel.running)
        for r, seq in seqs.items():
            found["status", (r,)] = Status.FREED if seq is None else seq.status
            found["in_waiting", (r,)] = seq in waiting or (
                self.loose and self.building is not None and _waits(seq)
            )
            found["in_running", (r,)] = seq in running
            found["announced", (r,)] = seq is not None and seq.announced
            found["kv_holding", (r,)] = seq is not None and seq.held_kv
            found["notice", (r,)] = r in kernel.notices
            found["triggered", (r,)] = seq is not None and seq.triggered and seq.status not in OVER
            for kind, transfer in _transfers(seq):
                found["transfer", (r, kind)] = _state(transfer) if transfer else Transfer.NONE
                held: list[int] = []
                if seq is not None and transfer and transfer.state in (Transfer.NEEDED, Transfer.ACTIVE):
                    held = transfer.hold.blocks[0] if transfer.hold else seq.table
                for b in self.blocks:
                    found["pinned", (r, kind, b)] = b in held
            for b in self.blocks:
                found["table", (r, b)] = seq is not None and b in seq.table
            for other, second in seqs.items():
                found["before", (r, other)] = (
                    r != other
                    and seq in waiting
                    and second in waiting
                    and waiting.index(seq) < waiting.index(second)
                )
        pool, keys = self.store.pool, self.store.prefixes.keys
        for b in self.blocks:
            found["free", (b,)] = b in pool.queue
            found["listed", (b,)] = int(b in pool.queue)
            found["ref", (b,)] = sum(s is not None and b in s.table for s in seqs.values())
            found["cached", (b,)] = keys[b] is not None
        for k, step in self.flights.items():
            rows = {row.seq.id: row for row in step.rows}
            for r in self.requests:
                found["row", (k, r)] = _worth(rows.get(r))
        sorts = {var.name: var.sort for var in self.spec.machine.vars}
        places = self._observed.items()
        return {place: code(sorts[cell[0]], found[cell]) for cell, place in places if cell in found}

    def agree(self, state: Packed, observed: dict[int, int]) -> bool:
        """The specification's state shows what the kernel shows."""
        return not self._apart(state, observed)

    # moving on

    def move(self, *names: str, **fixed: Any) -> None:
        """Only the specification moves: the beginning or end of a call, which a kernel has no operation for."""
        self.state = self._match(names, fixed, self.observed())

    def do(self, operation: str, call: Callable[[], Any], **fixed: Any) -> Any:
        """The kernel performs an operation, and the specification a matching action; or it refuses, and nothing changed.

        Answers what the kernel answered, or the refusal.
        """
        before = self.snapshot()
        try:
            answer = call()
        except Refused as refusal:
            if self.snapshot() != before:
                raise Mismatch(f"{operation} was refused ({refusal}), but changed something") from None
            return refusal
        if (answer is None and operation in NO_ROOM) or answer is False:
            if self.snapshot() != before:
                raise Mismatch(f"{operation} declined, but changed something")
            return answer
        self.state = self._match(CORRESPONDS[operation], fixed, self.observed())
        return answer

    def snapshot(self) -> tuple[Any, ...]:
        """Everything of the kernel that an operation may change."""
        kernel = self.kernel
        seqs = tuple(
            (r, str(kernel.seqs.get(r)), tuple(kernel.seqs[r].table) if r in kernel.seqs else ())
            for r in self.requests
        )
        return (
            tuple(sorted(self.observed().items())), tuple(self.store.pool.queue), tuple(self.store.pool.refs), seqs,
            tuple(s.id for s in kernel.running), tuple(s.id for s in kernel.loads),
        )  # fmt: skip

    def _match(self, names: tuple[str, ...], fixed: dict[str, Any], observed: dict[int, int]) -> Packed:
        for state in self._after(names, fixed, self.state):
            for end in self._settled(state, observed, depth=len(self.blocks) + 1):
                return end
        raise Mismatch(self._difference(names, fixed, observed))

    def _after(self, names: tuple[str, ...], fixed: dict[str, Any], state: Packed) -> Iterator[Packed]:
        actions = self.spec.actions
        for name in names:
            if name not in actions:
                continue
            action = actions[name]
            wanted = {p: v for p, v in fixed.items() if p in {q.name for q in action.action.params}}
            for arguments in action.instances(state):
                binding = action.binding(arguments)
                if all(binding[p] == v for p, v in wanted.items()):
                    yield action.step(state, arguments)

    def _settled(self, state: Packed, observed: dict[int, int], depth: int) -> Iterator[Packed]:
        if self.agree(state, observed):
            yield state
        elif depth:
            for after in self._after(FOLLOW, {}, state):
                if self._apart(after, observed) < self._apart(state, observed):
                    yield from self._settled(after, observed, depth - 1)

    def _apart(self, state: Packed, observed: dict[int, int]) -> int:
        return sum(self._differs(state, i, value) for i, value in observed.items())

    def _differs(self, state: Packed, i: int, value: int) -> bool:
        return value > state[i] if i in self._cached else value != state[i]

    def _difference(self, names: tuple[str, ...], fixed: dict[str, Any], observed: dict[int, int]) -> str:
        ends = list(self._after(names, fixed, self.state))
        if not ends:
            return f"none of {', '.join(names)} is enabled ({fixed}) in {self._show(self.state)}"
        best = min(ends, key=lambda state: self._apart(state, observed))
        cells = self.spec.layout.cells
        return f"{'/'.join(names)}: " + ", ".join(
            f"{cells[i][0]}{list(cells[i][1])}: kernel {value}, specification {best[i]}"
            for i, value in observed.items()
            if self._differs(best, i, value)
        )

    def _show(self, state: Packed) -> str:
        return ", ".join(
            f"{n}{list(a)}={v}" for (n, a), v in zip(self.spec.layout.cells, state, strict=True) if v
        )


def _waits(seq: Seq | None) -> bool:
    """A pass takes requests that it skips out of the queue, and puts them back at its end."""
    return seq is not None and seq.status is not Status.RUNNING and seq.status not in OVER


def _transfers(seq: Seq | None) -> tuple[tuple[Kind, Any], ...]:
    """The transfers of an incarnation, by kind."""
    if seq is None:
        return tuple((kind, None) for kind in Kind)
    return (Kind.RECEIVE, seq.receive), (Kind.SEND, seq.send), (Kind.HANDOFF, seq.handoff)


def _state(transfer: Any) -> Transfer:
    """What is known of a transfer; a load of which nothing came whole has failed."""
    return Transfer.FAILED if transfer.state is Transfer.DONE and transfer.valid == 0 else transfer.state


def _worth(row: Any) -> Row:
    """What a row in flight is worth now."""
    if row is None:
        return Row.NONE
    seq = row.seq
    if seq.status in (Status.FREED, Status.WAITING_FOR_TRANSFER_FREE) or row.run < seq.deliver_from:
        return Row.DROPPED
    return Row.CURRENT if row.run == seq.run else Row.DELIVERABLE
