"""The block lifecycle: its successor list is proved for any size, and each of its edges is seen."""

from __future__ import annotations

from dataclasses import replace

from tests.agreement.sizes import domain

from vllm_lifecycle.spec.check.explicit.search import explore
from vllm_lifecycle.spec.check.induction.prove import prove_property
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.block import EDGES, FOLLOWS_ITS_LIFECYCLE, SUCCESSORS, BlockState
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

MODULES = SYSTEM.closure(["engine", "custody", "prefix", "epochs"])


def seen(machine: Machine, steps: int, wanted: set[str]) -> set[str]:
    """The edges that a search takes at two requests and two blocks."""
    witnesses = [w for w in EDGES if w.name in wanted]
    symmetry = ("Request", "Block", "Step")
    found = explore(machine, domain(2, 2, steps, 1), [FOLLOWS_ITS_LIFECYCLE], witnesses, symmetry=symmetry)
    assert found.complete
    assert found.verdict(FOLLOWS_ITS_LIFECYCLE.name).outcome is Outcome.HOLDS
    return {w.name for w in witnesses if found.verdict(w.name).outcome is Outcome.HOLDS}


def test_every_state_has_successors() -> None:
    assert set(SUCCESSORS) == set(BlockState)
    assert all(following and state not in following for state, following in SUCCESSORS.items())


def test_the_successor_list_is_proved_for_any_number_of_blocks() -> None:
    machine = replace(SYSTEM, properties=(*SYSTEM.properties, FOLLOWS_ITS_LIFECYCLE), _index={})
    proof = prove_property(machine, FOLLOWS_ITS_LIFECYCLE.name)
    assert proof.verdict(FOLLOWS_ITS_LIFECYCLE.name).outcome is Outcome.HOLDS


def test_every_edge_is_taken() -> None:
    machine = SYSTEM.project(MODULES)
    missing = {w.name for w in EDGES}
    for features, steps in (
        (("core", "prefix", "load"), 2),
        (("core", "prefix", "load", "send", "reset"), 1),
    ):
        missing -= seen(machine.with_features(features), steps, missing)
    assert not missing
