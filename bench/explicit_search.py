"""Explicit search beside a plain Python search of the same model: counts, CPU seconds and the ratio, in one run.

    python bench/explicit_search.py [--quick]

The plain search is breadth-first with a set of packed tuples over `lang/compiled` (each action a compiled Python function);
both searches check nothing but reachability in the comparison, and must agree on states and transitions. The rows below it
add properties, symmetry and liveness on the packed search alone. All times are CPU seconds of this process, grounding and
code generation included where the column says "with start-up".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from vllm_lifecycle.spec.check.explicit.search import Exploration, explore
from vllm_lifecycle.spec.check.liveness import check_progress
from vllm_lifecycle.spec.lang.build import Individual, SetOf, State, exists, forall
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status as RequestStatus
from vllm_lifecycle.spec.scopes import Scope, parse

T = TypeVar("T")


class Status(Enum):
    """States of the one-word example."""

    FREED = "FREED"
    WAITING = "WAITING"
    RUNNING = "RUNNING"


class Request(Individual):
    """A request of the one-word example."""


class Block(Individual):
    """A block of the one-word example."""


def pool() -> Machine:
    """Requests that share the blocks of a pool: a model whose states fit one word."""
    spec = Spec("pool")
    spec.var("status", Request, to=Status, init=Status.FREED, module="queue")
    spec.var("table", Request, Block, module="custody")
    spec.var("free", Block, init=True, module="custody")

    @spec.action(by="client")
    def add_request(s: State, r: Request) -> None:
        s.require(s.status[r] == Status.FREED)
        s.status[r] = Status.WAITING

    @spec.action(by="scheduler", fair=True)
    def admit_request(s: State, r: Request, hits: SetOf[Block], fresh: SetOf[Block]) -> None:
        s.require(s.status[r] == Status.WAITING)
        s.require(forall(Block, lambda b: hits[b] >> (~s.free[b] & ~fresh[b])))
        s.require(forall(Block, lambda b: fresh[b] >> s.free[b]))
        s.status[r] = Status.RUNNING
        s.table[r, :] = lambda b: hits[b] | fresh[b]
        s.free[:] = lambda b: s.free[b] & ~fresh[b]

    @spec.action(by="scheduler", fair=True)
    def finish_request(s: State, r: Request) -> None:
        s.require(s.status[r] == Status.RUNNING)
        s.status[r] = Status.FREED
        s.table[r, :] = False
        s.free[:] = lambda b: ~exists(Request, lambda x: s.table[x, b])

    @spec.safety()
    def a_free_block_is_in_no_table(s: State, b: Block, r: Request) -> Implication:
        return when(s.free[b]).then(~s.table[r, b])

    return spec.seal()


def custody() -> tuple[Machine, Callable[[str], Domain]]:
    """The lifecycle specification, its custody modules: states of two words."""
    modules = ("engine", "queue", "steps", "custody", "handoff")
    scope = Scope("custody", {}, modules=modules, choices={"Status": (RequestStatus.FINISHED_STOPPED,)})
    return scope.machine(SYSTEM), lambda sizes: parse(sizes, scope).domain


def plain_search(machine: Machine, domain: Domain) -> tuple[int, int]:
    """States and transitions by a set and a list."""
    program = Program(machine, domain)
    seen = {program.initial}
    frontier = [program.initial]
    transitions = 0
    while frontier:
        following = []
        for state in frontier:
            for _, _, after in program.successors(state):
                transitions += 1
                if after not in seen:
                    seen.add(after)
                    following.append(after)
        frontier = following
    return len(seen), transitions


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result and the CPU seconds it took."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def show(what: str, states: int, transitions: int, seconds: float, rest: str = "") -> None:
    """One row of the table."""
    rates = f"{states / seconds / 1e6:8.3f} M states/s {transitions / seconds / 1e6:8.2f} M transitions/s"
    print(f"{what:<44}{states:>11} {transitions:>12} {seconds:>9.2f} s {rates}  {rest}".rstrip())


def compare(name: str, machine: Machine, domain: Domain) -> None:
    """The two searches side by side."""
    packed, with_start = timed(lambda: explore(machine, domain, [], []))
    (states, transitions), seconds = timed(lambda: plain_search(machine, domain))
    assert (packed.states, packed.transitions) == (states, transitions), "the two searches disagree"
    words = (
        f"{packed.model.layout.bits} bits, {packed.model.layout.words} word(s), {len(packed.model.rows)} rows"
    )
    show(f"{name}: plain Python", states, transitions, seconds)
    show(f"{name}: packed, with start-up", states, transitions, with_start, words)
    print(f"{name}: {seconds / with_start:.0f} times faster, start-up {with_start - packed.seconds:.2f} s")


def alone(
    name: str, machine: Machine, domain: Domain, symmetry: tuple[str, ...] = (), checked: bool = False
) -> Exploration:
    """The packed search alone."""
    claims = (None, None) if checked else ((), ())
    found = explore(machine, domain, *claims, symmetry=symmetry)
    rest = f"{found.unreduced} states unreduced" if symmetry else ""
    if checked:
        rest += f" {len(found.verdicts)} verdicts"
    show(name, found.states, found.transitions, found.seconds, rest)
    return found


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small scopes only")
    quick = parser.parse_args().quick
    small = pool()

    def sized(requests: int, blocks: int) -> Domain:
        return Domain({"Request": tuple(range(requests)), "Block": tuple(range(blocks))})

    compare("pool 4x4", small, sized(4, 4))
    if not quick:
        compare("pool 5x4", small, sized(5, 4))
        alone("pool 6x4", small, sized(6, 4))
    alone("pool 5x4 with symmetry", small, sized(5, 4), ("Request", "Block"))
    machine, domain = custody()
    compare("custody 1x2x1", machine, domain("1x2x1"))
    everyone = ("Request", "Block", "Step")
    scope = "1x3x1" if quick else "2x2x1"
    found = alone(f"custody {scope}", machine, domain(scope))
    alone(f"custody {scope} with properties", machine, domain(scope), checked=True)
    alone(f"custody {scope} with properties, symmetry", machine, domain(scope), everyone, checked=True)
    verdicts, seconds = timed(lambda: check_progress(machine, domain(scope), exploration=found))
    show(f"custody {scope}: liveness, {len(verdicts)} properties", found.states, found.transitions, seconds)


if __name__ == "__main__":
    main()
