"""The packed search: counts, shortest traces, limits, deadlock, overflow and symmetry on a small specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_lifecycle.spec.check.explicit.search import (
    DEADLOCK,
    Limits,
    OverflowFound,
    Progress,
    explore,
    shortest,
)
from vllm_lifecycle.spec.check.explicit.taken import taken_edges
from vllm_lifecycle.spec.check.verdict import Outcome, worst
from vllm_lifecycle.spec.lang.build import Individual, State
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.edges import edges
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort

Make = Callable[..., Any]
BOTH = ("Request", "Block")


class Token(Individual):
    """Individuals of the counting example."""


def counting(limit: int, guarded: bool) -> Any:
    """A counter per token that may leave its range."""
    spec = Spec("counting")
    spec.var("count", Token, to=IntSort(0, limit), init=0, module="m")
    spec.var("stuck", module="m")

    @spec.action(by="chance")
    def count_up(s: State, x: Token) -> None:
        s.require(~s.stuck)
        if guarded:
            s.require(s.count[x] < limit)
        s.count[x] = s.count[x] + 1

    @spec.action(by="chance")
    def stop_counting(s: State) -> None:
        s.require(~s.stuck)
        s.stuck = True

    @spec.safety()
    def a_stuck_counter_is_low(s: State, x: Token) -> Implication:
        return when(s.stuck).then(s.count[x] < limit)

    return spec.seal()


@pytest.mark.parametrize(("requests", "blocks"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_counts_are_those_of_the_plain_search(
    requests: int, blocks: int, make_pool: Make, make_domain: Make, search_naively: Make
) -> None:
    machine, domain = make_pool(), make_domain(requests, blocks)
    naive = search_naively(machine, domain)
    found = explore(machine, domain)
    assert (found.states, found.transitions, found.depth) == (
        len(naive.states),
        len(naive.edges),
        naive.depth,
    )
    assert found.complete
    for name, count in found.actions.items():
        assert count == sum(1 for _, action, _, _ in naive.edges if action == name)
    assert worst(v for v in found.verdicts if not v.claim.startswith("can_")) is Outcome.HOLDS
    reduced = explore(machine, domain, symmetry=BOTH)
    assert reduced.unreduced == found.states
    assert reduced.states < found.states or found.states < 5


def test_a_defect_falls_with_its_shortest_trace(make_pool: Make, make_domain: Make) -> None:
    verdict = shortest(make_pool(leak=True), make_domain(2, 2), "a_free_block_is_in_no_table")
    assert verdict.outcome is Outcome.REFUTED
    actions = [step.action for step in verdict.trace]
    assert actions[-1] == "finish_request"
    assert sorted(actions) == [
        "add_request",
        "add_request",
        "admit_request",
        "admit_request",
        "finish_request",
    ]
    assert ("status[r0]", "FREED -> WAITING") in verdict.trace[0].changes


def test_symmetry_finds_traces_of_the_same_length(make_pool: Make, make_domain: Make) -> None:
    machine, domain = make_pool(leak=True), make_domain(3, 3)
    plain, reduced = explore(machine, domain), explore(machine, domain, symmetry=BOTH)
    assert reduced.states < plain.states / 10
    for one, two in zip(plain.verdicts, reduced.verdicts, strict=True):
        assert (one.claim, one.outcome, len(one.trace)) == (two.claim, two.outcome, len(two.trace))


def test_a_search_that_is_cut_off_never_holds(make_pool: Make, make_domain: Make) -> None:
    machine, domain = make_pool(leak=True), make_domain(2, 3)
    depth = explore(machine, domain, limits=Limits(max_depth=2))
    assert not depth.complete
    assert depth.verdict("a_free_block_is_in_no_table").outcome is Outcome.NOT_ESTABLISHED
    assert depth.verdict("a_free_block_is_in_no_table").reason == "depth 2 reached"
    for limits in (Limits(max_states=10), Limits(max_bytes=1000), Limits(max_seconds=0.0)):
        cut = explore(machine, domain, limits=limits)
        assert not cut.complete
        outcomes = {v.outcome for v in cut.verdicts if not v.claim.startswith("can_")}
        assert outcomes == {Outcome.NOT_ESTABLISHED}


def test_an_interrupt_leaves_a_partial_verdict(make_pool: Make, make_domain: Make) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.level == 6:
            raise KeyboardInterrupt

    found = explore(make_pool(leak=True), make_domain(2, 3), progress=interrupt)
    assert found.cut == "interrupted"
    assert found.verdict("a_free_block_is_in_no_table").outcome is Outcome.REFUTED
    assert found.verdict("a_running_request_keeps_its_blocks").outcome is Outcome.NOT_ESTABLISHED


def test_deadlocks_are_found_unless_they_are_named_idle() -> None:
    machine, domain = counting(1, guarded=True), Domain({"Token": (0, 1)})
    verdict = explore(machine, domain, idle=()).verdict(DEADLOCK)
    assert verdict.outcome is Outcome.REFUTED
    assert [str(step) for step in verdict.trace] == ["stop_counting()"]


def test_a_number_out_of_range_is_an_error_with_its_trace() -> None:
    domain = Domain({"Token": (0, 1)})
    with pytest.raises(
        OverflowFound, match=r"count_up takes count\[t0\] to 3 after 2 steps, outside 0..2"
    ) as error:
        explore(counting(2, guarded=False), domain)
    assert [step.action for step in error.value.trace] == ["count_up", "count_up", "count_up"]
    assert explore(counting(2, guarded=True), domain).complete


def test_a_property_that_falls_first_is_shown_before_an_overflow() -> None:
    domain = Domain({"Token": (0,)})
    verdict = shortest(counting(2, guarded=False), domain, "a_stuck_counter_is_low")
    assert verdict.outcome is Outcome.REFUTED
    assert len(verdict.trace) == 3


def test_bad_scopes_are_refused(make_pool: Make, make_domain: Make) -> None:
    with pytest.raises(DefinitionError, match="no individuals of sort Block"):
        explore(make_pool(), Domain({"Request": (0,)}))
    with pytest.raises(DefinitionError, match="no uninterpreted sort Step"):
        explore(make_pool(), make_domain(1, 1), symmetry=("Step",))
    with pytest.raises(DefinitionError, match="too many"):
        explore(make_pool(), make_domain(6, 6), symmetry=BOTH)
    found = explore(make_pool(), make_domain(1, 1))
    with pytest.raises(DefinitionError, match="check_progress"):
        found.verdict("a_waiting_request_is_freed")


def test_edges_really_taken_are_those_of_the_successor_list(make_pool: Make, make_domain: Make) -> None:
    machine, domain = make_pool(), make_domain(2, 2)
    (lifecycle,) = machine.lifecycles
    for symmetry in ((), BOTH):
        taken = taken_edges(explore(machine, domain, symmetry=symmetry), lifecycle)
        assert taken == frozenset(edges(machine, lifecycle))
        assert {(e.source, e.target) for e in taken} == {
            (source, target) for source, targets in lifecycle.successors for target in targets
        }
