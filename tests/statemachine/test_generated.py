"""Walks beyond the exhaustive scopes: machines, compiled program and reference evaluator together, every property watched."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.agreement.sizes import domain
from tests.statemachine.generated import Walk, state_machine

from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.mutants import MUTANTS
from vllm_lifecycle.statemachine.tables import IllegalMove

SIZES = (4, 6, 3, 2)
CI = settings.get_profile("ci")


def walk(machine: Machine, limits: settings) -> type[Walk]:
    """Walk a machine at a size that no search exhausts."""
    walks = state_machine(machine, domain(*SIZES))
    run_state_machine_as_test(walks, settings=limits)
    return walks


def test_the_specification_beyond_exhaustive_scopes() -> None:
    """How deep random walks lead differs from run to run: there are more of them where it was not deep."""
    taken: set[str] = set()
    found: set[str] = set()
    for steps in (140, 180, 220):
        walks = walk(SYSTEM, settings(CI, max_examples=60, stateful_step_count=steps))
        assert sum(walks.taken.values()) >= 2000
        taken.update(walks.taken)
        found.update(walks.found)
        if len(taken) >= 0.7 * len(SYSTEM.actions) and len(found) >= 0.85 * len(SYSTEM.witnesses):
            return
    raise AssertionError(f"the walks do not lead deep: {len(taken)} actions, {len(found)} witnesses")


@pytest.mark.parametrize(
    "name",
    ["preemption_leaks_its_blocks", "an_answered_step_keeps_its_blocks", "sleeps_while_a_request_waits"],
)
def test_a_mutant_is_found_by_a_walk(name: str) -> None:
    mutant = MUTANTS[name]
    limits = settings(CI, max_examples=300, stateful_step_count=40, phases=[Phase.generate])
    with pytest.raises((AssertionError, IllegalMove), match=r"fails for|cannot take"):
        walk(mutant.machine().with_features(mutant.features), limits)
