"""Random specifications: the packed search, the one with symmetry and the plain one agree on counts and trace lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_lifecycle.spec.check.explicit.search import OverflowFound, explore
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine, Property

Make = Callable[..., Any]


def shortest_violation(naive: Any, prop: Property, domain: ev.Domain) -> int | None:
    """Steps to the first violation of a property in the plain search."""

    def falls(before: Any, after: Any = None) -> bool:
        return any(True for _ in ev.violations(prop.params, prop.body, ev.Context(domain, before, after)))

    if prop.kind == "state":
        depths = [naive.depth_of[i] for i, s in enumerate(naive.states) if falls(s)]
    else:
        depths = [
            naive.depth_of[i] + 1 for i, _, _, j in naive.edges if falls(naive.states[i], naive.states[j])
        ]
    return min(depths, default=None)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_three_searches_agree(
    seed: int, random_machine: Make, search_naively: Make, make_domain: Make
) -> None:
    machine: Machine | None = random_machine(seed)
    domain = make_domain(2, 2)
    naive = search_naively(machine, domain, 200) if machine is not None else None
    if machine is None or naive is None:
        return
    if naive.overflow:
        with pytest.raises(OverflowFound):
            explore(machine, domain)
        return
    found = explore(machine, domain)
    assert (found.states, found.transitions, found.depth) == (
        len(naive.states),
        len(naive.edges),
        naive.depth,
    )
    reduced = explore(machine, domain, symmetry=("Request", "Block"))
    assert reduced.unreduced == found.states
    for prop in machine.properties:
        if prop.kind == "progress":
            continue
        expected = shortest_violation(naive, prop, domain)
        for search in (found, reduced):
            verdict = search.verdict(prop.name)
            assert verdict.outcome is (Outcome.HOLDS if expected is None else Outcome.REFUTED)
            assert len(verdict.trace) == (expected or 0)
