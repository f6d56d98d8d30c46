"""Progress by ranking: what is proved, and each way in which a rank can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.spec.check.induction.specs import Job, Stage, pipeline

from vllm_lifecycle.spec.check.induction import Proof, Rankings, helpful, members, prove
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, every, ite, one_if
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lang.sorts import DefinitionError

DONE = "a_ready_job_is_done"
ALL_DONE = "all_ready_jobs_are_done_in_a_closed_shop"


def one_job_rank(s: State, j: Expr) -> tuple[Any, ...]:
    return (one_if(s.open), ite(s.open, 0, one_if(s.waiting[j])))


def one_job_steps(s: State, j: Expr) -> tuple[Any, ...]:
    return (
        helpful("shut", when=every(s.open)),
        helpful("start", j=j, when=~s.open & s.waiting[j]),
        helpful("finish", j=j, when=~s.open & ~s.waiting[j]),
    )


def ready(s: State, j: Expr) -> Expr:
    return every(s.stage[j] == Stage.READY)


def all_jobs_rank(s: State) -> tuple[Any, ...]:
    return (members(Job, lambda j: s.waiting[j]), members(Job, lambda j: ready(s, j)))


def all_jobs_steps(s: State) -> tuple[Any, ...]:
    return (
        helpful("start", when=lambda j: s.waiting[j]),
        helpful("finish", when=lambda j: ready(s, j) & ~s.waiting[j]),
    )


def attempt(
    name: str, rank: Callable[..., Any], steps: Callable[..., Any], spec: Spec | None = None, **more: Any
) -> tuple[Proof, list[str]]:
    machine = (spec or pipeline()).seal()
    ranks = Rankings(machine)
    ranks.claim(name, rank=rank, steps=steps, **more)
    proof = prove(machine, seeds=(0,), rankings=ranks.all)
    return proof, [r.obligation.label for r in proof.failures]


def test_a_lexicographic_rank_of_one_job() -> None:
    proof, failures = attempt(DONE, one_job_rank, one_job_steps)
    assert not failures
    verdict = proof.verdict(DONE)
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.assumptions == ("weak fairness of start, finish, shut",)


def test_a_set_as_rank_for_any_number_of_jobs() -> None:
    proof, failures = attempt(ALL_DONE, all_jobs_rank, all_jobs_steps)
    assert not failures
    assert proof.verdict(ALL_DONE).assumptions == ("weak fairness of start, finish", "finitely many Job")


def test_a_rank_that_an_action_raises() -> None:
    proof, failures = attempt(DONE, lambda s, j: (one_if(s.waiting[j]),), one_job_steps)
    assert "keeps: disturb" in failures
    assert proof.verdict(DONE).outcome is Outcome.NOT_ESTABLISHED
    (shown,) = (r.counterexample for r in proof.failures if r.obligation.label == "keeps: disturb")
    assert shown is not None and str(shown.step) == "disturb(j=j0)"


def test_a_step_that_does_not_lower_the_rank() -> None:
    _, failures = attempt(DONE, lambda s, j: (one_if(s.open),), one_job_steps)
    assert failures == ["step 2 start stays helpful: start", "step 2 start helps"]


def test_a_step_that_is_not_enabled() -> None:
    def steps(s: State, j: Expr) -> tuple[Any, ...]:
        shut, start, _ = one_job_steps(s, j)
        return shut, start, helpful("finish", j=j, when=~s.open)

    _, failures = attempt(DONE, one_job_rank, steps)
    assert "step 3 finish is enabled" in failures


def test_a_state_where_nothing_helps() -> None:
    _, failures = attempt(DONE, one_job_rank, lambda s, j: one_job_steps(s, j)[:2])
    assert failures == ["some step helps"]


def test_a_step_that_stops_being_helpful() -> None:
    def steps(s: State, j: Expr) -> tuple[Any, ...]:
        return helpful("finish", j=j, when=~s.waiting[j]), helpful("start", j=j, when=every(s.waiting[j]))

    _, failures = attempt(DONE, lambda s, j: (one_if(s.open),), steps)
    assert any(f.startswith("step 1 finish stays helpful: disturb") for f in failures)


def test_a_negative_rank() -> None:
    _, failures = attempt(DONE, lambda s, j: (one_if(s.open) - 1, *one_job_rank(s, j)[1:]), one_job_steps)
    assert "the rank is not negative" in failures


def test_pending_has_to_cover_what_is_open() -> None:
    _, failures = attempt(DONE, one_job_rank, one_job_steps, pending=lambda s, j: ready(s, j) & s.open)
    assert "what is open is pending" in failures


def test_a_rank_needs_fair_steps() -> None:
    with pytest.raises(DefinitionError, match="start is not fair enough to help, it needs weak fairness"):
        attempt(DONE, one_job_rank, one_job_steps, pipeline(fair=False))


def test_what_is_never_to_happen_is_an_assumption() -> None:
    proof, failures = attempt(
        DONE,
        lambda s, j: (one_if(s.waiting[j]),),
        lambda s, j: one_job_steps(s, j)[1:],
        unless=("the shop opens", lambda s, j: s.open),
    )
    assert not failures
    assert "never: the shop opens" in proof.verdict(DONE).assumptions


def gate(*, opens: bool = True) -> Spec:
    """Jobs pass a gate that opens and shuts: strong fairness is needed, and that the gate opens again."""
    spec = Spec("gate")
    spec.var("stage", Job, to=Stage, init=Stage.READY, module="m")
    spec.var("gate", module="m")

    @spec.action(by="x", fair=opens)
    def open_gate(s: State) -> None:
        s.require(~s.gate)
        s.gate = True

    @spec.action(by="x")
    def shut_gate(s: State) -> None:
        s.require(s.gate)
        s.gate = False

    @spec.action(by="x", fair=Fairness.STRONG)
    def go(s: State, j: Job, with_others: SetOf[Job]) -> None:
        s.require(s.gate & (s.stage[j] == Stage.READY))
        s.require(~with_others[j])
        s.stage[:] = lambda k: ite((k == j) | with_others[k], Stage.DONE, s.stage[k])

    @spec.progress()
    def a_ready_job_goes(s: State, j: Job) -> Implication:
        return when(s.stage[j] == Stage.READY).then(s.stage[j] == Stage.DONE)

    return spec


def the_gate_opens(s: State) -> Implication:
    """The lemma."""
    return when(~s.gate).then(s.gate)


def gate_ranks(spec: Spec, after: str | None) -> Rankings:
    ranks = Rankings(spec.seal())
    ranks.lemma(the_gate_opens, rank=lambda s: (), steps=lambda s: (helpful("open_gate", when=~s.gate),))
    ranks.claim(
        "a_ready_job_goes",
        rank=lambda s, j: (),
        steps=lambda s, j: (
            helpful("go", j=j, with_others=lambda k: every(False), when=ready(s, j), after=after),
        ),
    )
    return ranks


def test_strong_fairness_needs_that_a_step_is_enabled_again_and_again() -> None:
    ranks = gate_ranks(gate(), "the_gate_opens")
    proof = prove(ranks.machine, rankings=ranks.all)
    assert proof.outcome is Outcome.HOLDS, str(proof)
    assert proof.verdict("a_ready_job_goes").assumptions == (
        "weak fairness of open_gate",
        "strong fairness of go",
    )


def test_a_step_that_is_enabled_now_and_then_is_not_enabled() -> None:
    ranks = gate_ranks(gate(), None)
    proof = prove(ranks.machine, rankings=ranks.all)
    assert [r.obligation.label for r in proof.failures] == ["step 1 go is enabled"]


def test_a_claim_falls_with_the_one_it_leans_on() -> None:
    ranks = gate_ranks(gate(), "the_gate_opens")
    broken = Rankings(ranks.machine)
    broken.lemma(the_gate_opens, rank=lambda s: (), steps=lambda s: ())
    broken.all += ranks.all[1:]
    proof = prove(ranks.machine, rankings=broken.all)
    assert proof.verdict("a_ready_job_goes").outcome is Outcome.NOT_ESTABLISHED
    assert (
        proof.verdict("a_ready_job_goes").reason
        == "its proof leans on the_gate_opens, which is not established"
    )


def test_ranks_are_refused_when_they_cannot_be_meant() -> None:
    machine = gate().seal()
    ranks = Rankings(machine)

    def claim(*steps: Any) -> None:
        ranks.claim("a_ready_job_goes", rank=lambda s, j: (), steps=lambda s, j: steps)

    with pytest.raises(DefinitionError, match="the_gate_opens has no rank yet"):
        claim(
            helpful(
                "go", when=lambda j: every(True), with_others=lambda k: every(False), after="the_gate_opens"
            )
        )
    with pytest.raises(DefinitionError, match="say with which set with_others"):
        claim(helpful("go", when=lambda j: every(True)))
    with pytest.raises(DefinitionError, match="go has no parameter i"):
        claim(helpful("go", i=1, when=every(True)))
    with pytest.raises(DefinitionError, match="unknown action gone"):
        claim(helpful("gone", when=every(True)))
    with pytest.raises(DefinitionError, match="is no progress property"):
        Rankings(pipeline().seal()).claim("only_ready_jobs_wait", rank=lambda s, j: (), steps=lambda s, j: ())
    with pytest.raises(DefinitionError, match="not of sort Bool"):
        ranks.claim("a_ready_job_goes", rank=lambda s, j: (s.gate,), steps=lambda s, j: ())


def test_a_variant_without_the_fairness_is_not_proved() -> None:
    machine = pipeline().seal()
    ranks = Rankings(machine)
    ranks.claim(DONE, rank=one_job_rank, steps=one_job_steps)
    unfair = tuple(replace(a, fairness=Fairness.NONE) if a.name == "start" else a for a in machine.actions)
    proof = prove(replace(machine, actions=unfair, _index={}), seeds=(0,), rankings=ranks.all)
    assert [r.obligation.label for r in proof.failures] == ["step 2 start is fair"]
