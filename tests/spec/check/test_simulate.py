"""Random walks: the same seed gives the same answer, a defect is found, and nothing is ever established."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_lifecycle.spec.check.simulate import simulate
from vllm_lifecycle.spec.check.verdict import Outcome

Make = Callable[..., Any]


def test_a_walk_finds_a_defect_and_repeats_it(make_pool: Make, make_domain: Make) -> None:
    machine, domain = make_pool(leak=True), make_domain(3, 3)
    first = simulate(machine, domain, walks=5, steps=60, seed=7)
    assert first == simulate(machine, domain, walks=5, steps=60, seed=7)
    found = {v.claim: v for v in first}["a_free_block_is_in_no_table"]
    assert found.outcome is Outcome.REFUTED
    assert found.trace[-1].action == "finish_request"


def test_walks_establish_nothing(make_pool: Make, make_domain: Make) -> None:
    verdicts = simulate(make_pool(), make_domain(2, 2), walks=3, steps=20)
    assert {v.outcome for v in verdicts} == {Outcome.NOT_ESTABLISHED}
    assert len(verdicts) == 2
