"""The proof engine on small specifications: what is proved, what is counted, and how a failure is shown."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from tests.spec.check.induction.specs import custody, pipeline, relay, tickets

from vllm_lifecycle.spec.check.induction import Answer, prove, prove_actions, prove_property
from vllm_lifecycle.spec.check.induction import pool as worker_pool
from vllm_lifecycle.spec.check.induction.prover import Prover
from vllm_lifecycle.spec.check.induction.second import CLAIM, MISSING, second_opinion
from vllm_lifecycle.spec.check.induction.theory import Theory, script
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import DefinitionError


@pytest.mark.parametrize("spec", [custody(), tickets(), relay(), pipeline()], ids=lambda s: s.name)
def test_right_specifications_are_proved(spec: Spec) -> None:
    proof = prove(spec.seal())
    assert proof.outcome is Outcome.HOLDS, str(proof)
    assert not proof.failures
    assert all(r.answers == ("unsat",) * 3 for r in proof.results if r.status is Answer.PROVED)


def test_every_property_range_and_count_has_one_verdict() -> None:
    machine = custody().seal()
    claims = [v.claim for v in prove(machine).verdicts]
    wanted = {p.name for p in machine.properties}
    assert wanted <= set(claims)
    assert {"refs stays in its range", "refs is the number it counts", "every action is possible"} <= set(
        claims
    )
    assert len(claims) == len(set(claims))


def test_a_verdict_carries_its_scope() -> None:
    verdict = prove(custody().seal()).verdict("a_held_page_is_counted")
    assert verdict.scope.startswith("any number of User, Page")
    assert verdict.engine.startswith("induction/z3 ")
    assert "finitely many User" in verdict.assumptions
    assert "many is at least the number of User" in verdict.assumptions
    assert verdict.numbers["obligations"] == 4
    assert verdict.numbers["seeds"] == [0, 1, 2]


def test_obligations_are_counted_one_by_one_and_frame_ones_apart() -> None:
    machine = tickets().seal()
    proof = prove(machine)
    # Three properties and three ranges, each at the start and for two actions; and the possibility of both actions.
    assert len(proof.results) == 6 * 3 + 2
    frame = {r.obligation.name for r in proof.results if r.status is Answer.FRAME}
    assert frame == {
        "served_are_drawn / serve",
        "numbers_differ / serve",
        "next stays in its range / serve",
        "number stays in its range / serve",
        "served stays in its range / draw",
    }


def test_a_counterexample_to_induction_is_small_and_readable() -> None:
    proof = prove_property(custody(frees_shared=True).seal(), "a_free_page_is_in_no_table")
    (failure,) = proof.failures
    shown = failure.counterexample
    assert shown is not None
    assert {s: len(n) for s, n in shown.domain.individuals.items()} == {"User": 2, "Page": 1}
    assert str(shown.step) == "leave(u=u0)"
    assert str(shown).endswith("  falls for p = p0, u = u1")
    assert ("free[p0]", "true") in shown.step.changes
    assert "before: table[u0, p0] = true, table[u1, p0] = true" in str(shown)
    verdict = proof.verdict("a_free_page_is_in_no_table")
    assert verdict.outcome is Outcome.NOT_ESTABLISHED
    assert verdict.reason == "not inductive: leave"


def test_what_is_false_at_the_start_is_refuted() -> None:
    machine = tickets().seal()
    variables = tuple(
        replace(v, init=replace(v.init, value=1)) if v.name == "served" else v for v in machine.vars
    )
    proof = prove(replace(machine, vars=variables, _index={}))
    assert proof.verdict("nobody_is_served_before_drawing").outcome is Outcome.REFUTED
    assert proof.outcome is Outcome.REFUTED


def test_one_claim_brings_along_what_its_proof_leans_on() -> None:
    proof = prove_property(custody().seal(), "a_held_page_is_counted")
    assert proof.outcome is Outcome.HOLDS
    assert proof.verdicts[0].claim == "a_held_page_is_counted" or len(proof.verdicts) > 1
    asked = {v.claim for v in proof.verdicts}
    assert all(proof.leans_on(claim) <= asked for claim in asked)
    assert not any("taken for granted" in a for v in proof.verdicts for a in v.assumptions)


def test_an_unknown_claim_is_one_clear_line() -> None:
    with pytest.raises(DefinitionError, match="unknown property a_held_page_is_count: did you mean"):
        prove_property(custody().seal(), "a_held_page_is_count")


def test_minimal_cores_name_what_an_obligation_needs() -> None:
    theory = Theory(custody().seal())
    proof = prove(theory.machine, seeds=(0,), cores=True)
    assert proof.uses["only_busy_users_hold_pages / leave"] == ("only_busy_users_hold_pages",)
    prover, everything = Prover(theory, seeds=(0,)), {a.of for a in theory.assumptions}
    needing = [o for o in theory.obligations if len(proof.uses.get(o.name, ())) >= 2]
    assert needing
    for obligation in needing:
        uses = set(proof.uses[obligation.name])
        assert prover.discharge(obligation, frozenset(everything - uses)).status is Answer.PROVED
        for claim in uses:
            fewer = prover.discharge(obligation, frozenset(everything - uses | {claim}))
            assert fewer.status is Answer.UNKNOWN, (obligation.name, claim)


def test_workers_answer_as_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = custody(frees_shared=True).seal()
    alone = prove(machine, jobs=1)
    monkeypatch.setattr(worker_pool, "FEW", 1)
    spread = prove(machine, jobs=2)
    assert [(r.obligation.name, r.status) for r in spread.results] == [
        (r.obligation.name, r.status) for r in alone.results
    ]
    assert [str(r.counterexample) for r in spread.failures] == [str(r.counterexample) for r in alone.failures]


def test_a_machine_that_cannot_travel_is_proved_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> bytes:
        raise pickle.PicklingError("no")

    monkeypatch.setattr(worker_pool, "FEW", 1)
    monkeypatch.setattr(pickle, "dumps", refuse)
    assert prove(tickets().seal(), jobs=2).outcome is Outcome.HOLDS


def test_progress_is_told_and_an_interrupt_leaves_a_partial_answer() -> None:
    seen: list[tuple[int, int]] = []

    def told(done: int, total: int) -> None:
        seen.append((done, total))
        if len(seen) == 10:
            raise KeyboardInterrupt

    proof = prove(custody().seal(), jobs=1, progress=told)
    assert len(proof.results) < seen[0][1]
    assert proof.outcome is Outcome.NOT_ESTABLISHED
    assert any(v.reason == "interrupted before all obligations were asked" for v in proof.verdicts)


def test_an_obligation_is_exported_as_a_script() -> None:
    theory = Theory(custody().seal())
    obligation = next(o for o in theory.obligations if o.name == "a_free_page_is_in_no_table / leave")
    text = script(theory, obligation)
    assert text.startswith("; a_free_page_is_in_no_table / leave\n(set-logic ALL)")
    assert "(declare-fun s.table (S.User S.Page) Bool)" in text
    assert text.rstrip().endswith("(check-sat)")


def test_cvc5_agrees() -> None:
    pytest.importorskip("cvc5")
    for spec in (custody(), tickets(), relay()):
        verdict = second_opinion(prove(spec.seal(), seeds=(0,)))
        assert verdict.outcome is Outcome.HOLDS, verdict
        assert verdict.numbers["unsat"] == verdict.numbers["obligations"] > 0


def test_cvc5_is_missed_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cvc5", None)
    verdict = second_opinion(prove(relay().seal(), seeds=(0,)))
    assert (verdict.claim, verdict.outcome, verdict.reason) == (CLAIM, Outcome.NOT_ESTABLISHED, MISSING)


def test_a_claim_that_falls_through_a_lemma_is_found_among_all_claims() -> None:
    right, wrong = custody().seal(), custody(frees_shared=True).seal()
    mixed = replace(right, actions=tuple(wrong.action(a.name) for a in right.actions), _index={})
    failed = {r.obligation.name for r in prove_actions(mixed, ["leave"]).failures}
    assert failed == {
        "a_free_page_is_in_no_table / leave",
        "a_page_is_freed_only_by_its_last_holder / leave",
    }
