"""The whole specification at small scopes: the packed search and a plain one agree, and lifecycles move as they are listed."""

from __future__ import annotations

from collections import Counter

import pytest

from vllm_lifecycle.spec.check.explicit.search import Exploration, explore
from vllm_lifecycle.spec.check.explicit.taken import taken_edges
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.edges import edges
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.scopes import SCOPES, Scope, parse

SIZES = {"chunks": "1x2x2", "handoffs": "1x2x2", "queues": "2x1x1", "encoder": "1x1x1x2", "steps": "1x1x1"}
TOO_LARGE = "everything"
"""Has more than a million states even at one individual of each sort: too many for the plain search."""
SORTS = ("Request", "Block", "Step", "Entry")


def named(name: str) -> Scope:
    return parse(SIZES[name], parse(name)) if name in SIZES else parse("1x2x1", parse(name))


@pytest.fixture(scope="module", params=[s.name for s in SCOPES if s.name != TOO_LARGE])
def scope(request: pytest.FixtureRequest) -> Scope:
    return named(request.param)


@pytest.fixture(scope="module")
def found(scope: Scope) -> Exploration:
    return explore(scope.machine(SYSTEM), scope.domain, (), ())


def test_counts_agree_with_a_plain_search(scope: Scope, found: Exploration) -> None:
    program = Program(scope.machine(SYSTEM), scope.domain)
    seen, frontier = {program.initial}, [program.initial]
    taken: Counter[str] = Counter()
    while frontier:
        following = []
        for state in frontier:
            for action, _, after in program.successors(state):
                taken[action.name] += 1
                if after not in seen:
                    seen.add(after)
                    following.append(after)
        frontier = following
    assert found.states == len(seen)
    assert {name: n for name, n in found.actions.items() if n} == dict(taken)
    reduced = explore(scope.machine(SYSTEM), scope.domain, (), (), symmetry=SORTS)
    assert reduced.unreduced == found.states


def test_lifecycles_move_as_the_successor_lists_and_the_actions_say(found: Exploration) -> None:
    machine = found.model.machine
    for lifecycle in machine.lifecycles:
        taken = taken_edges(found, lifecycle)
        assert taken <= frozenset(edges(machine, lifecycle))
        for edge in taken:
            assert edge.target in lifecycle.table[edge.source]


def test_nothing_is_refuted(scope: Scope) -> None:
    verdicts = explore(scope.machine(SYSTEM), scope.domain, symmetry=SORTS).verdicts
    assert [v.claim for v in verdicts if v.outcome is Outcome.REFUTED] == []
