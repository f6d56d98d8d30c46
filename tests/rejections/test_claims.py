"""Properties and witnesses that are ill-formed."""

from __future__ import annotations

from typing import Any

from tests.rejections.notebook import Block, Cases, Request

from vllm_lifecycle.spec.lang.build import SetOf, State, exists
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lang.define import Spec

cases = Cases()
claim, rejects = cases.claim, cases.rejects


@claim("a property without a witness could hold for want of cases: return when(interesting case).then(claim)")
def bare_claim(s: State, b: Block) -> Any:
    return s.free[b]


@claim("a property without a witness could hold for want of cases")
def nothing_returned(s: State, b: Block) -> None:
    when(s.free[b]).then(s.size == 0)


@claim("the antecedent is always true: name the interesting case, or write always(claim)")
def antecedent_always_true(s: State, b: Block) -> Implication:
    return when(s.free[b] | ~s.free[b]).then(s.size == 0)


@claim("the antecedent is never true: the property says nothing; name a case that can be")
def antecedent_never_true(s: State, b: Block) -> Implication:
    return when(s.free[b] & ~s.free[b]).then(s.size == 0)


@claim("the claim is always true on its face: say something that could fail")
def consequent_always_true(s: State, b: Block) -> Implication:
    return when(s.free[b]).then(s.free[b])


@claim("the claim is always true on its face")
def unconditional_and_always_true(s: State) -> Implication:
    return always(True)


@claim("parameter r is never used: leave it out")
def unused_parameter(s: State, r: Request, b: Block) -> Implication:
    return when(s.free[b]).then(s.size == 0)


@claim("chosen is a set: only an action chooses sets; speak of their members instead")
def set_in_a_property(s: State, chosen: SetOf[Block]) -> Implication:
    return when(exists(Block, lambda b: chosen[b])).then(s.size == 0)


@claim("free cannot be assigned here: only an action changes the state")
def assignment_in_a_property(s: State, b: Block) -> Implication:
    s.free[b] = True
    return when(s.free[b]).then(s.size == 0)


@claim("only an action has guards: in a property write when(antecedent).then(...)")
def guard_in_a_property(s: State, b: Block) -> Implication:
    s.require(s.free[b])
    return always(s.size == 0)


@claim("s.old.size needs a step: define the property with @spec.step, or read s.size")
def old_state_in_a_state_property(s: State, b: Block) -> Implication:
    return when(s.free[b]).then(s.size == s.old.size)


@claim("s.old.free needs a step", kind="progress")
def old_state_in_a_progress_property(s: State, b: Block) -> Implication:
    return when(s.old.free[b]).then(s.size == 0)


@claim("unknown state variable lamp", kind="step")
def unknown_variable_in_a_step(s: State, r: Request) -> Implication:
    return when(s.old.lamp[r]).then(s.size == 0)


@claim("the claim fails (or might) when a step changes nothing that it reads: name what changes", kind="step")
def claim_that_every_step_changes_something(s: State, b: Block) -> Implication:
    return when(s.old.free[b]).then(~s.free[b])


@claim("this property is defined twice: give one of them another name")
def a_free_block_is_in_no_table(s: State, b: Block) -> Implication:
    return when(s.free[b]).then(s.size == 0)


@rejects("full: a witness says what can happen: name it can_...")
def witness_with_another_name(spec: Spec) -> None:
    @spec.witness
    def full(s: State) -> Any:
        return s.size == 3


@rejects("can_be_sized: a truth value is needed here, but this is of sort 0..3")
def witness_that_is_no_condition(spec: Spec) -> None:
    @spec.witness
    def can_be_sized(s: State) -> Any:
        return s.size


@rejects("can_happen: the condition is never true on its face: say what can happen")
def witness_that_is_never_true(spec: Spec) -> None:
    @spec.witness
    def can_happen(s: State) -> Any:
        return (s.size == 1) & ~(s.size == 1)


@rejects("can_hold: parameter b is never used: leave it out")
def witness_with_an_unused_parameter(spec: Spec) -> None:
    @spec.witness
    def can_hold(s: State, b: Block) -> Any:
        return s.size == 1


@rejects("witness can_be_full is defined twice: give one of them another name")
def witness_defined_twice(spec: Spec) -> None:
    def can_be_full(s: State) -> Any:
        return s.size == 3

    spec.witness(can_be_full)
    spec.witness(can_be_full)


@cases.each()
def test_rejected(name: str) -> None:
    cases.check(name)
