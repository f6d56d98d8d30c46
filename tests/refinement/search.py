"""Every state that a kernel can reach at a small scope, each move checked against the specification.

Breadth first, up to the names of requests and blocks (image.py): from each state every move is made that the driver knows, and
the specification must have a matching action. One pair is moved on and put back again and again.
"""

from __future__ import annotations

import marshal
from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b

from tests.refinement.image import Image, canonical, restore
from tests.refinement.lockstep import Lockstep, Mismatch
from tests.refinement.moves import Driver

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel


@dataclass
class Found:
    """Counts of an exhaustive search: states, moves made, moves refused or without effect, how often each kind was made."""

    states: int = 0
    made: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def pair(spec: Program, kernel: type[Kernel] | None = None) -> Lockstep:
    """The specification with this kernel, or with one of the kind that the features ask for."""
    features = spec.machine.features
    usual = SessionKernel if "sessions" in features else Kernel
    return Lockstep(spec, kernel or (HandoffKernel if "handoff" in features else usual))


def digest(image: Image) -> bytes:
    """Stands for an image; that two have the same is less likely than a fault of the machine."""
    return blake2b(marshal.dumps(image, 2), digest_size=12).digest()


def explore(
    spec: Program, sizes: tuple[int, ...] = (1, 2), limit: int = 10**9, kernel: type[Kernel] | None = None
) -> Found:
    """All states; Mismatch with a shortest sequence of moves to the first disagreement, each named as in the state before it."""
    found = Found()
    driver = Driver(pair(spec, kernel), sizes)
    twin = driver.twin
    start = canonical(twin)
    seen = {digest(start)}
    queue = deque([marshal.dumps(start, 2)])
    parents = array("I", [0])
    via: list[str] = [""]
    while queue:
        here = marshal.loads(queue.popleft())
        restore(twin, here)
        moves = list(driver.moves())
        for name, move in moves:
            steps = twin.steps
            try:
                move()
            except Mismatch as mismatch:
                path = "; ".join(_path(found.states, parents, via))
                raise Mismatch(f"after {path or 'nothing'}: {name}: {mismatch}") from None
            if twin.steps == steps:
                found.refused += 1
                continue
            found.made += 1
            found.kinds[name.split()[0]] += 1
            after = canonical(twin)
            key = digest(after)
            if key not in seen:
                seen.add(key)
                if len(seen) > limit:
                    raise RuntimeError(f"more than {limit} states")
                queue.append(marshal.dumps(after, 2))
                parents.append(found.states)
                via.append(name)
            restore(twin, here)
        found.states += 1
    return found


def _path(state: int, parents: array[int], via: list[str]) -> list[str]:
    """The moves that led to a state."""
    path = []
    while state:
        path.append(via[state])
        state = parents[state]
    return path[::-1]
