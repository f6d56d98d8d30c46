"""Refutation of mutants: what counts as refuted, and what does not. (All mutants are run by the main job itself.)"""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_lifecycle.spec.check import mutation
from vllm_lifecycle.spec.check.explicit.search import Limits
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.mutants import MUTANTS

MUTANT = MUTANTS["abort_frees_receiving_blocks"]


def test_a_defect_is_refuted_by_its_property_with_a_shortest_trace() -> None:
    verdict = mutation.refute(MUTANT, others=True)
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.claim == f"{MUTANT.name} is refuted by {MUTANT.breaks}"
    assert verdict.trace[-1].action == "abort_request"
    assert verdict.numbers["length"] == len(verdict.trace)
    assert MUTANT.breaks not in verdict.numbers["also"]


def test_a_mutant_without_a_defect_survives_and_that_is_a_refutation() -> None:
    verdict = mutation.refute(replace(MUTANT, actions=(), sizes=(1, 1, 1)))
    assert verdict.outcome is Outcome.REFUTED
    assert "survives" in verdict.reason


def test_a_property_that_falls_without_the_defect_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "SYSTEM", MUTANT.machine())
    verdict = mutation.refute(MUTANT)
    assert verdict.outcome is Outcome.NOT_ESTABLISHED
    assert "without the defect" in verdict.reason


def test_a_search_that_was_cut_off_establishes_nothing() -> None:
    assert mutation.refute(MUTANT, Limits(max_states=3)).outcome is Outcome.NOT_ESTABLISHED


def test_a_property_that_refutes_no_mutant_is_named() -> None:
    verdict = mutation.score([mutation.refute(MUTANT)])
    assert verdict.outcome is Outcome.NOT_ESTABLISHED
    assert "a_block_that_is_not_free_has_a_holder" in verdict.reason
    assert f"{MUTANT.breaks} refutes 1: {MUTANT.name}" in verdict.numbers["score"]
    assert MUTANT.breaks not in verdict.reason
