"""Kernel and specification side by side: after each operation of the kernel, the specification must have a matching action.

`Lockstep` wraps a kernel. An operation that the kernel performs must be one of the actions that `CORRESPONDS` names for it,
enabled in the specification's state, followed at most by bookkeeping of the same call (blocks entered in the prefix cache, an
id set free), and lead to a state that agrees with the kernel on everything observed. One that it refuses must have changed
nothing. What only the specification has (ghosts, the phase of a call) follows from the action.

The kernel may find fewer blocks in its prefix cache than the specification: forgetting is always safe, for nothing requires a
block to be found. So `cached` of the kernel is a part of the specification's, which then forgets the rest; everything else is
equal.

Each token has a block of its own here, and equal prefixes have equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.refinement.image import Image, image
from tests.refinement.view import SHOWN, Shown, View

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.codegen import Emitter, Finder
from vllm_lifecycle.spec.lang.compiled import CompiledAction, Program
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.packed import Packed
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.correspondence import CORRESPONDS
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.queue import ArrivalQueue, Queue
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row as Part
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

    With hand-offs, notices and counts of hook calls are left out: they are held to in the other scopes. So is the prefix cache
    where it is not asked for. What neither a kernel shows nor anything that it shows depends on (ghosts) is sliced off, which
    changes nothing of the rest.
    """
    without = ({"hooks"} if "handoff" in features else set()) | (set() if order else {"order"})
    without |= {"prefix"} if features and "prefix" not in features else set()
    kept = (*MODULES, "sessions") if "sessions" in features else MODULES
    part = SYSTEM.project(m for m in kept if m not in without).with_features(features or FEATURES)
    return part.slice(var.name for var in part.vars if var.name in SHOWN)


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
        self.rows: list[Part] = []
        self.answered: tuple[int, list[Part]] | None = None
        self.loose = False
        self.notices = any(var.name == "notice" for var in spec.machine.vars)
        self.steps = 0
        self.known: Image | None = None
        self._views: dict[tuple[int, ...], View] = {}
        self._finders: dict[tuple[str, tuple[tuple[str, int], ...]], Finder] = {}

    def answer(self, seq: Seq) -> tuple[bool, None]:
        """The connector's answer when a request ends: what the driver chose, where there is something to send."""
        return self.hold and any(map(len, self.kernel.store.table(seq))), None

    def shown(self) -> Shown:
        """What the kernel shows now."""
        flights = tuple(self.flights)
        if flights not in self._views:
            self._views[flights] = View(self.spec.layout, self.requests, self.blocks, flights)
        waits = self.loose and self.building is not None
        return self._views[flights].of(self.kernel, self.store, self.flights, waits)

    # moving on

    def says(self, variable: str, r: str) -> int:
        """What the specification's state has for a request."""
        return self.state[self.spec.layout.cells.index((variable, (r,)))]

    def move(self, *names: str, **fixed: Any) -> None:
        """Only the specification moves: the beginning or end of a call, which a kernel has no operation for."""
        self._match(names, fixed)

    def do(self, operation: str, call: Callable[[], Any], **fixed: Any) -> Any:
        """The kernel performs an operation, and the specification a matching action; or it refuses, and nothing changed.

        Answers what the kernel answered, or the refusal.
        """
        before = self.known = self.known or image(self)
        try:
            answer = call()
        except Refused as refusal:
            if image(self) != before:
                raise Mismatch(f"{operation} was refused ({refusal}), but changed something") from None
            return refusal
        if (answer is None and operation in NO_ROOM) or answer is False:
            if image(self) != before:
                raise Mismatch(f"{operation} declined, but changed something")
            return answer
        if operation in NO_ROOM:
            fixed["fresh"] = frozenset(answer[0])
        self._match(CORRESPONDS[operation], fixed)
        return answer

    def _match(self, names: tuple[str, ...], fixed: dict[str, Any]) -> None:
        self.known = None
        self.steps += 1
        shown = self.shown()
        for state in self._after(names, fixed, self.state):
            for end in self._settled(state, shown, depth=len(self.blocks) + 1):
                self.state = shown.forgetting(end)
                return
        raise Mismatch(self._difference(names, fixed, shown))

    def _after(self, names: tuple[str, ...], fixed: dict[str, Any], state: Packed) -> Iterator[Packed]:
        """The states after actions of these names with these arguments."""
        actions = self.spec.actions
        for name in names:
            if name not in actions:
                continue
            action = actions[name]
            known, sets = self._codes(action, fixed)
            for arguments in self._finder(action, known)(state, None):
                if all(arguments[i] == mask for i, mask in sets):
                    yield action.step(state, arguments)

    def _codes(
        self, action: CompiledAction, fixed: dict[str, Any]
    ) -> tuple[tuple[tuple[str, int], ...], list[tuple[int, int]]]:
        """What is fixed, as numbers: single arguments by name, sets by their place."""
        known, sets = [], []
        for i, param in enumerate(action.action.params):
            if param.name in fixed:
                (code,) = self.spec.layout.arguments((param,), fixed)
                if param.is_set:
                    sets.append((i, code))
                else:
                    known.append((param.name, code))
        return tuple(known), sets

    def _finder(self, action: CompiledAction, known: tuple[tuple[str, int], ...]) -> Finder:
        """The enabled arguments of an action of which some are known."""
        key = action.name, known
        if key not in self._finders:
            spec = self.spec
            chosen = {
                p.name: tuple(spec.layout.code(p.sort, v) for v in spec.domain.choices[str(p.sort)])
                for p in action.action.params
                if str(p.sort) in spec.domain.choices
            }
            chosen |= {name: (code,) for name, code in known}
            parts = tuple(part for g in action.action.guards for part in t.conjuncts(g.term))
            self._finders[key] = Emitter(spec.layout).finder(action.action.params, parts, chosen)
        return self._finders[key]

    def _settled(self, state: Packed, shown: Shown, depth: int) -> Iterator[Packed]:
        if shown.agrees(state):
            yield state
        elif depth:
            here = shown.apart(state)
            for after in self._after(FOLLOW, {}, state):
                if shown.apart(after) < here:
                    yield from self._settled(after, shown, depth - 1)

    def _difference(self, names: tuple[str, ...], fixed: dict[str, Any], shown: Shown) -> str:
        ends = list(self._after(names, fixed, self.state))
        if not ends:
            return f"none of {', '.join(names)} is enabled ({fixed}) in {self._show(self.state)}"
        best = min(ends, key=shown.apart)
        cells = self.spec.layout.cells
        return f"{'/'.join(names)}: " + ", ".join(
            f"{cells[i][0]}{list(cells[i][1])}: kernel {value}, specification {best[i]}"
            for i, value in shown.differences(best)
        )

    def _show(self, state: Packed) -> str:
        return ", ".join(
            f"{n}{list(a)}={v}" for (n, a), v in zip(self.spec.layout.cells, state, strict=True) if v
        )
