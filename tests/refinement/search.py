"""Every state that a kernel can reach at a small scope, each move checked against the specification."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from dataclasses import dataclass, field

from tests.refinement.lockstep import Lockstep, Mismatch
from tests.refinement.moves import Driver

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel


@dataclass
class Found:
    """Counts of an exhaustive search: states, moves that the kernel made, moves that it refused, how often each kind was made."""

    states: int = 0
    made: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def freeze(driver: Driver) -> bytes:
    """The pair without the (shared, large) specification."""
    twin = driver.twin
    twin.kernel._finishing = None  # type: ignore[assignment]
    parts = (twin.kernel, twin.state, twin.flights, twin.building, driver.rows, driver.answered)
    frozen = pickle.dumps(parts, protocol=5)
    twin.kernel._finishing = twin.answer
    return frozen


def thaw(spec: Program, frozen: bytes, sizes: tuple[int, ...]) -> Driver:
    """A pair of its own in that state."""
    twin = Lockstep(spec)
    driver = Driver(twin, sizes)
    twin.kernel, twin.state, twin.flights, twin.building, driver.rows, driver.answered = pickle.loads(frozen)
    twin.kernel._finishing = twin.answer
    assert isinstance(twin.kernel.store, PagedStore)
    twin.store = twin.kernel.store
    return driver


def identity(driver: Driver) -> object:
    """What the future depends on: the specification's state, the order of the free list, tokens, and rows not yet processed."""
    twin = driver.twin
    kernel = twin.kernel
    seqs = tuple(
        (len(s.tokens), s.tokens[-1], s.computed, s.in_flight, s.cached_blocks, s.receive and s.receive.valid)
        if (s := kernel.seqs.get(r))
        else None
        for r in twin.requests
    )
    order = sorted(twin.flights, key=lambda k: twin.flights[k].number)
    building = [(row.seq.id, row.tokens) for row in driver.rows]
    slot, left = driver.answered or (None, [])
    answered = slot, [row.seq.id for row in left]
    held = sorted(tuple(hold.blocks[0]) for hold in kernel.steps.held)
    keys = {key: i for i, key in enumerate(dict.fromkeys(twin.store.prefixes.keys))}
    named = [keys[key] for key in twin.store.prefixes.keys]
    return repr(
        (twin.state, list(twin.store.pool.queue), seqs, order, building, answered, held, named, twin.building)
    )


def pair(spec: Program) -> Lockstep:
    """A kernel of the kind that the features ask for."""
    features = spec.machine.features
    if "handoff" in features:
        return Lockstep(spec, HandoffKernel)
    return Lockstep(spec, SessionKernel if "sessions" in features else Kernel)


def explore(spec: Program, sizes: tuple[int, ...] = (1, 2), limit: int = 10**9) -> Found:
    """Breadth first; Mismatch with the shortest sequence of moves to the first disagreement."""
    found = Found()
    first = Driver(pair(spec), sizes)
    seen = {identity(first)}
    queue: deque[tuple[bytes, tuple[str, ...]]] = deque([(freeze(first), ())])
    while queue:
        frozen, path = queue.popleft()
        found.states += 1
        names = [name for name, _ in thaw(spec, frozen, sizes).moves()]
        for index, name in enumerate(names):
            driver = thaw(spec, frozen, sizes)
            _, move = list(driver.moves())[index]
            try:
                answer = move()
            except Mismatch as mismatch:
                raise Mismatch(f"after {'; '.join(path) or 'nothing'}: {name}: {mismatch}") from None
            if isinstance(answer, Refused):
                found.refused += 1
                continue
            found.made += 1
            found.kinds[name.split()[0]] += 1
            key = identity(driver)
            if key not in seen:
                seen.add(key)
                if len(seen) > limit:
                    raise RuntimeError(f"more than {limit} states")
                queue.append((freeze(driver), (*path, name)))
    return found
