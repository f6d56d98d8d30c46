"""Two hundred random specifications: naive interpreter, compiled evaluation, explicit search, symmetry and z3 see the same."""

from __future__ import annotations

import pytest
from tests.agreement.bmc import Runs
from tests.agreement.naive import Naive, search
from tests.agreement.specs import Example, example

from vllm_lifecycle.spec.check.explicit.search import Exploration, Limits, OverflowFound, explore
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.sorts import DefinitionError

SPECS = 200
IN_A_TEST = 20
DEEPEST = 4
"""Longest run that z3 is asked about."""
MOST_ENDS = 16
"""Most states of one depth that z3 enumerates."""

some_seeds = pytest.mark.parametrize("first", range(0, SPECS, IN_A_TEST))


def seeds(first: int) -> range:
    return range(first, first + IN_A_TEST)


def lengths(found: Exploration) -> dict[str, int]:
    return {v.claim: len(v.trace) for v in found.verdicts if v.outcome is Outcome.REFUTED}


def check_compiled(this: Example, naive: Naive) -> None:
    program = Program(this.machine, this.domain)
    layout = program.layout
    for state, steps in naive.steps.items():
        packed = layout.pack(dict(zip(layout.cells, state, strict=True)))
        assert tuple(layout.unpack(packed).values()) == state
        mine = {
            (a.name, tuple(a.binding(args).items()), tuple(layout.unpack(after).values()))
            for a, args, after in program.successors(packed)
        }
        assert mine == set(steps), this.seed


def check_explicit(this: Example, naive: Naive) -> None:
    limits = Limits(max_depth=None if naive.complete else naive.depth)
    found = explore(this.machine, this.domain, limits=limits)
    assert [len(level[0]) for level in found.levels] == naive.counts, this.seed
    assert found.transitions == naive.transitions, this.seed
    assert found.complete == naive.complete, this.seed
    assert lengths(found) == naive.lengths, this.seed
    sorts = tuple(s.name for s in this.machine.sorts)
    if sorts:
        reduced = explore(this.machine, this.domain, symmetry=sorts, limits=limits)
        assert reduced.unreduced == found.states, this.seed
        assert len(reduced.levels) == len(found.levels), this.seed
        assert lengths(reduced) == naive.lengths, this.seed


def check_z3(this: Example, naive: Naive) -> None:
    claims = {p.name: p for p in this.machine.properties if p.kind != "progress"}
    shortest: dict[str, int] = {}
    runs = Runs(this.machine, this.domain)
    for length, image in zip(range(min(naive.depth, DEEPEST) + 1), naive.images(), strict=False):
        if length:
            runs.extend()
        for name, claim in claims.items():
            if name not in shortest and runs.violates(claim):
                shortest[name] = length
        if len(image) <= MOST_ENDS:
            assert set(runs.ends()) == image, (this.seed, length)
    assert shortest == {n: k for n, k in naive.lengths.items() if k <= runs.length}, this.seed


@some_seeds
def test_all_engines_agree(first: int) -> None:
    for seed in seeds(first):
        this = example(seed)
        naive = search(this.machine, this.domain, max_states=120)
        assert not naive.fault
        check_compiled(this, naive)
        check_explicit(this, naive)
        check_z3(this, naive)


def test_all_engines_agree_on_the_first_number_out_of_range() -> None:
    faults = 0
    for seed in range(40):
        this = example(seed, wild=True)
        naive = search(this.machine, this.domain, max_states=120)
        if not naive.fault:
            check_compiled(this, naive)
            continue
        faults += 1
        with pytest.raises(OverflowFound) as raised:
            explore(this.machine, this.domain)
        assert len(raised.value.trace) == naive.depth + 1, seed
        program = Program(this.machine, this.domain)
        with pytest.raises(DefinitionError) as refused:
            for state in naive.levels[-1]:
                packed = program.layout.pack(dict(zip(program.layout.cells, state, strict=True)))
                list(program.successors(packed))
        assert "outside" in str(refused.value) and "guard the action" in str(refused.value)
    assert faults >= 10
