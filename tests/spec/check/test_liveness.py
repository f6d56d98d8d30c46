"""Liveness: verdicts and lassos on examples, and agreement with a plain implementation on random specifications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_lifecycle.spec.check.explicit.search import Limits, OverflowFound, explore
from vllm_lifecycle.spec.check.liveness import check_progress, representatives
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Fairness, Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError

Make = Callable[..., Any]


def with_fairness(machine: Machine, name: str, fairness: Fairness) -> Machine:
    actions = tuple(replace(a, fairness=fairness) if a.name == name else a for a in machine.actions)
    return replace(machine, actions=actions, _index={})


def test_progress_holds_under_the_fairness_that_it_names(make_pool: Make, make_domain: Make) -> None:
    (verdict,) = check_progress(make_pool(), make_domain(2, 2))
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.assumptions == ("weak fairness of each instance of admit_request(r), finish_request(r)",)


def test_a_run_may_stop_where_nothing_fair_is_enabled(make_pool: Make, make_domain: Make) -> None:
    machine = with_fairness(make_pool(), "finish_request", Fairness.NONE)
    (verdict,) = check_progress(machine, make_domain(2, 2))
    assert verdict.outcome is Outcome.REFUTED
    assert [step.action for step in verdict.trace] == ["add_request", "admit_request"]
    assert verdict.numbers["cycle"] == 0
    assert "nothing fair is enabled" in verdict.reason


def test_fairness_of_one_request_does_not_serve_another(make_pool: Make, make_domain: Make) -> None:
    """Another request comes and goes for ever, but a weakly fair instance of the waiting one is not starved."""
    machine = make_pool()
    unfair = with_fairness(machine, "admit_request", Fairness.NONE)
    (verdict,) = check_progress(unfair, make_domain(2, 1))
    assert verdict.outcome is Outcome.REFUTED
    assert check_progress(machine, make_domain(2, 1))[0].outcome is Outcome.HOLDS


def test_reduced_graphs_are_refused(make_pool: Make, make_domain: Make) -> None:
    machine, domain = make_pool(), make_domain(2, 2)
    reduced = explore(machine, domain, symmetry=("Request",))
    with pytest.raises(DefinitionError, match="explore without symmetry"):
        check_progress(machine, domain, exploration=reduced)


def test_a_search_that_was_cut_off_establishes_nothing(make_pool: Make, make_domain: Make) -> None:
    (verdict,) = check_progress(make_pool(), make_domain(2, 2), limits=Limits(max_depth=2))
    assert verdict.outcome is Outcome.NOT_ESTABLISHED
    assert verdict.reason == "depth 2 reached"


def test_one_parameter_value_per_orbit_is_checked(make_pool: Make, make_domain: Make) -> None:
    machine = make_pool()
    found = representatives(machine.claim("a_free_block_is_in_no_table").params, make_domain(3, 3))
    assert found == [{"b": 0, "r": 0}]


def fair_run_exists(naive: Any, machine: Machine, alive: set[int], seeds: set[int]) -> bool:
    """Plainly: is there a fair run inside `alive` from some seed? Streett condition by recursion over components."""
    fair = {a.name: a for a in machine.actions if a.fairness is not Fairness.NONE}
    scalars = {a.name: [p.name for p in a.params if not p.is_set] for a in machine.actions}
    edges = [
        (i, (name, tuple(b[p] for p in scalars[name])) if name in fair else None, j)
        for i, name, b, j in naive.edges
        if i != j
    ]
    enabled: dict[int, set[Any]] = {}
    for i, group, _ in edges:
        if group is not None:
            enabled.setdefault(i, set()).add(group)

    def closure(start: set[int], inside: set[int], back: bool) -> set[int]:
        seen = set(start)
        while True:
            more = {
                (i if back else j)
                for i, _, j in edges
                if i in inside and j in inside and (j if back else i) in seen
            }
            if more <= seen:
                return seen
            seen |= more

    def fair_in(states: set[int]) -> bool:
        while states:
            one = next(iter(states))
            component = closure({one}, states, False) & closure({one}, states, True)
            states = states - component
            taken = {g for i, g, j in edges if i in component and j in component}
            always = set.intersection(*(enabled.get(i, set()) for i in component))
            ever = set.union(*(enabled.get(i, set()) for i in component))
            if always - taken:
                continue
            starved = {g for g in ever - taken if fair[g[0]].fairness is Fairness.STRONG}
            if not starved:
                return True
            if fair_in({i for i in component if not enabled.get(i, set()) & starved}):
                return True
        return False

    return fair_in(closure(seeds & alive, alive, False))


@pytest.mark.parametrize("seed", range(60))
def test_verdicts_agree_with_a_plain_implementation(
    seed: int, random_machine: Make, search_naively: Make, make_domain: Make
) -> None:
    machine = random_machine(seed)
    if machine is None:
        return
    domain = make_domain(2, 2)
    naive = search_naively(machine, domain, 200)
    if naive is None or naive.overflow:
        return
    prop = machine.claim("sooner_or_later")
    expected, met = False, False
    for binding in ev.bindings(prop.params, domain):
        contexts = [ev.Context(domain, s) for s in naive.states]
        alive = {i for i, c in enumerate(contexts) if not ev.evaluate(prop.consequent, c, binding)}
        seeds = {i for i, c in enumerate(contexts) if ev.evaluate(prop.antecedent, c, binding)}
        met = met or bool(seeds)
        expected = expected or fair_run_exists(naive, machine, alive, seeds)
    try:
        (verdict,) = check_progress(machine, domain, [prop])
    except OverflowFound:
        pytest.fail("the plain search found no overflow")
    assert verdict.outcome is (
        Outcome.REFUTED if expected else Outcome.HOLDS if met else Outcome.NOT_ESTABLISHED
    )
