"""The specification itself, module by module at small sizes: naive interpreter, plain Python, packed search, symmetry, z3."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from tests.agreement.bmc import Runs
from tests.agreement.fast import Fast
from tests.agreement.naive import search
from tests.agreement.sizes import domain

from vllm_lifecycle.spec.check.explicit.search import Limits, explore
from vllm_lifecycle.spec.check.mutation import scopes
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.evaluate import Domain, instances
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.mutants import MUTANTS
from vllm_lifecycle.spec.mutants.mutant import Mutant

TINY = [
    ("engine",),
    ("sleep",),
    ("order",),
    ("epochs",),
    ("chunks",),
    ("sessions",),
    ("encoder",),
    ("custody",),
    ("hooks",),
]
SMALL = [
    ("order",),
    ("epochs", "membership"),
    ("chunks", "sessions"),
    ("encoder",),
    ("custody",),
    ("pressure",),
]
SHORT = 5
"""Longest run that z3 is asked about."""
FEW = 60
"""Most action instances of a mutant that is searched again in plain Python."""


def part(modules: tuple[str, ...]) -> Machine:
    return SYSTEM.project(SYSTEM.closure(modules))


@pytest.mark.parametrize("modules", TINY, ids="+".join)
def test_one_individual_of_each_sort(modules: tuple[str, ...]) -> None:
    machine, where = part(modules), domain(1, 1, 1, 1)
    naive = search(machine, where, max_states=400)
    limits = Limits(max_depth=None if naive.complete else naive.depth)
    packed = explore(machine, where, witnesses=[], limits=limits)
    assert [len(level[0]) for level in packed.levels] == naive.counts
    assert (packed.transitions, packed.complete) == (naive.transitions, naive.complete)
    assert {v.claim: len(v.trace) for v in packed.verdicts if v.outcome is Outcome.REFUTED} == naive.lengths
    runs = Runs(machine, where)
    for length, image in zip(range(SHORT), naive.images(), strict=False):
        if length:
            runs.extend()
        assert len(image) > 40 or set(runs.ends()) == image, length


@pytest.mark.parametrize("modules", SMALL, ids="+".join)
def test_two_individuals(modules: tuple[str, ...]) -> None:
    machine, where = part(modules), domain(2, 1, 1, 2)
    fast = Fast(machine, where, max_states=4000)
    limits = Limits(max_depth=None if fast.complete else len(fast.counts) - 1)
    packed = explore(machine, where, witnesses=[], limits=limits)
    assert [len(level[0]) for level in packed.levels] == fast.counts
    assert packed.transitions == fast.transitions
    assert {v.claim: len(v.trace) for v in packed.verdicts if v.outcome is Outcome.REFUTED} == fast.lengths
    reduced = explore(machine, where, witnesses=[], limits=limits, symmetry=("Request", "Block", "Entry"))
    assert reduced.unreduced == packed.states == len(fast.states)
    assert reduced.states < packed.states


@cache
def small_mutants() -> tuple[tuple[Mutant, Machine, Domain], ...]:
    """Mutants of a state or step property with a small cone, in the scope that they are refuted in first."""
    found = []
    for mutant in MUTANTS.values():
        if SYSTEM.claim(mutant.breaks).kind != "progress":
            scope = next(scopes(mutant))
            cone = scope.machine(mutant.machine(), about=mutant.breaks)
            if sum(1 for _ in instances(cone, scope.domain)) <= FEW:
                found.append((mutant, cone, scope.domain))
    return tuple(found)


def counterexamples() -> Iterator[tuple[str, Machine, Domain, int]]:
    """Small mutants with the length of the trace that the packed search finds."""
    for mutant, cone, where in small_mutants():
        found = explore(cone, where, [cone.claim(mutant.breaks)], [], stop_at_first=True).verdict(
            mutant.breaks
        )
        if found.outcome is Outcome.REFUTED:
            yield mutant.breaks, cone, where, len(found.trace)


def test_mutants_fall_after_as_many_steps_in_plain_python_and_in_z3() -> None:
    searched = asked = 0
    for name, cone, where, length in counterexamples():
        fast = Fast(cone, where, max_states=20_000, stop_at=name)
        assert fast.lengths[name] == length, name
        searched += 1
        if length <= SHORT:
            runs, claim = Runs(cone, where), cone.claim(name)
            falls = []
            for n in range(length + 1):
                if n:
                    runs.extend()
                falls.append(runs.violates(claim))
            assert falls == [False] * length + [True], name
            asked += 1
    assert searched >= 25 and asked >= 6
