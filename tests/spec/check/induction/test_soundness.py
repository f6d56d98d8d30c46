"""Wrong specifications that a careless prover would call proved, one for each way to be wrong."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Annotated

import pytest
from tests.spec.check.induction.specs import Job, Page, Stage, User, custody, relay, tickets

from vllm_lifecycle.spec.check.induction import Answer, Proof, prove
from vllm_lifecycle.spec.check.induction import prover as prover_module
from vllm_lifecycle.spec.check.induction.obligations import UNTOUCHED, after
from vllm_lifecycle.spec.check.induction.smt import Z3
from vllm_lifecycle.spec.check.verdict import Outcome
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, either, exists, forall
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import BOOL, DefinitionError, IntSort


def outcomes(proof: Proof) -> dict[str, Outcome]:
    return {v.claim: v.outcome for v in proof.verdicts}


def holding(spec: Spec) -> set[str]:
    return {claim for claim, outcome in outcomes(prove(spec.seal())).items() if outcome is Outcome.HOLDS}


def test_no_sort_is_empty() -> None:
    spec = Spec("none")
    spec.var("free", Page, init=True, module="m")
    spec.var("asked", module="m")

    @spec.action(by="x")
    def ask(s: State) -> None:
        s.asked = True

    @spec.safety()
    def no_page_is_free_when_asked(s: State) -> Implication:
        return when(s.asked).then(forall(Page, lambda p: ~s.free[p]))

    @spec.safety()
    def some_page_is_free(s: State) -> Implication:
        return always(exists(Page, lambda p: s.free[p]))

    assert holding(spec) == {"some_page_is_free", "every action is possible"}


def two_sided(*, lemma_init: bool) -> Spec:
    spec = Spec("two_sided")
    spec.var("on", Job, module="m")
    spec.var("seen", Job, init=lemma_init, module="m")

    @spec.action(by="x")
    def turn_on(s: State, j: Job) -> None:
        s.require(~s.seen[j])
        s.on[j] = True

    @spec.safety(lemma=True)
    def all_are_seen(s: State, j: Job) -> Implication:
        return always(s.seen[j])

    @spec.safety()
    def none_is_on(s: State, j: Job) -> Implication:
        return always(~s.on[j])

    return spec


def test_a_false_lemma_establishes_nothing() -> None:
    proof = prove(two_sided(lemma_init=False).seal())
    assert outcomes(proof)["all_are_seen"] is Outcome.REFUTED
    assert outcomes(proof)["none_is_on"] is Outcome.NOT_ESTABLISHED
    assert "all_are_seen" in proof.verdict("none_is_on").reason


def test_an_action_that_the_invariants_forbid_is_not_established() -> None:
    proof = prove(two_sided(lemma_init=True).seal())
    assert outcomes(proof)["none_is_on"] is Outcome.HOLDS
    verdict = proof.verdict("every action is possible")
    assert verdict.outcome is Outcome.NOT_ESTABLISHED
    assert verdict.reason.startswith("turn_on: no state that keeps the invariants enables it")


def test_claims_that_contradict_each_other_are_not_both_established() -> None:
    spec = Spec("contradiction")
    spec.var("on", module="m")

    @spec.action(by="x")
    def toggle(s: State) -> None:
        s.on = ~s.on

    @spec.safety()
    def it_is_on(s: State) -> Implication:
        return always(s.on)

    @spec.safety()
    def it_is_off(s: State) -> Implication:
        return always(~s.on)

    found = outcomes(prove(spec.seal()))
    assert found["it_is_on"] is Outcome.REFUTED
    assert found["it_is_off"] is Outcome.NOT_ESTABLISHED


def stages(*members: Stage) -> Spec:
    spec = Spec("stages")
    spec.var("stage", Job, to=Stage, init=Stage.IDLE, module="m")

    @spec.action(by="x")
    def move(s: State, j: Job, to: Stage) -> None:
        s.require(s.stage[j] != to)
        s.stage[j] = to

    @spec.safety()
    def covered(s: State, j: Job) -> Implication:
        return always(either(*(s.stage[j] == m for m in members)))

    return spec


def test_an_enum_has_exactly_its_members() -> None:
    assert "covered" in holding(stages(*Stage))
    assert "covered" not in holding(stages(Stage.IDLE, Stage.READY))
    assert "covered" not in holding(stages(Stage.READY, Stage.DONE))


def test_members_of_two_enums_with_one_name_are_two_values() -> None:
    class Kind(Enum):
        IDLE = "IDLE"
        OTHER = "OTHER"

    spec = stages(*Stage)
    spec.var("kind", Job, to=Kind, init=Kind.IDLE, module="m")

    @spec.action(by="x")
    def change(s: State, j: Job) -> None:
        s.require(s.kind[j] == Kind.IDLE)
        s.kind[j] = Kind.OTHER

    @spec.safety()
    def idle_in_both_senses(s: State, j: Job) -> Implication:
        return when(s.stage[j] == Stage.IDLE).then(s.kind[j] == Kind.IDLE)

    assert "idle_in_both_senses" not in holding(spec)


def test_the_state_after_is_not_the_state_before() -> None:
    spec = Spec("swap")
    spec.var("left", module="m")
    spec.var("right", init=True, module="m")

    @spec.action(by="x")
    def copy(s: State) -> None:
        s.left = s.right
        s.right = s.left  # the value that was just assigned: no swap

    @spec.safety()
    def exactly_one_is_on(s: State) -> Implication:
        return always(s.left != s.right)

    assert "exactly_one_is_on" not in holding(spec)
    assert "exactly_one_is_on" in holding(relay())


def test_a_range_is_proved_before_it_is_used() -> None:
    proof = prove(tickets(guarded=False).seal())
    found = outcomes(proof)
    assert found["next stays in its range"] is Outcome.NOT_ESTABLISHED
    assert found["served stays in its range"] is Outcome.NOT_ESTABLISHED
    assert "served stays in its range" not in {c for c, o in found.items() if o is Outcome.HOLDS}


def test_a_number_that_a_parameter_cannot_have_is_not_assumed_to_be_excluded() -> None:
    spec = Spec("parameter")
    spec.var("level", to=IntSort(0, 3), init=0, module="m")

    @spec.action(by="x")
    def set_level(s: State, to: Annotated[int, IntSort(0, 3)]) -> None:
        s.level = to

    @spec.safety()
    def it_is_low(s: State) -> Implication:
        return always(s.level <= 2)

    assert holding(spec) == {"level stays in its range", "every action is possible"}


def test_a_wrong_counter_is_not_exact() -> None:
    found = outcomes(prove(custody(forgets_to_count=True).seal()))
    assert found["working is the number it counts"] is Outcome.NOT_ESTABLISHED


def counter(*, two_at_once: bool) -> Spec:
    spec = Spec("counter")
    spec.const("many")
    spec.var("on", Job, module="m")
    spec.var("sum", to=IntSort(0, "many"), init=0, module="m")

    @spec.action(by="x")
    def turn_on(s: State, j: Job, others: SetOf[Job]) -> None:
        s.require(~s.on[j])
        s.require(~others[j])
        s.sum = s.sum + 1
        s.on[:] = lambda k: s.on[k] | ((k == j) | others[k] if two_at_once else k == j)

    @spec.count("sum", over=Job)
    def those_on(s: State, j: Job) -> Expr:
        return s.on[j]  # type: ignore[no-any-return]

    @spec.safety()
    def two_make_two(s: State, j: Job, k: Job) -> Implication:
        return when(s.on[j], s.on[k], j != k).then(s.sum >= 2)

    return spec


def test_a_step_that_changes_many_memberships_is_not_counted_as_one() -> None:
    assert {"sum is the number it counts", "two_make_two"} <= holding(counter(two_at_once=False))
    found = outcomes(prove(counter(two_at_once=True).seal()))
    assert found["sum is the number it counts"] is Outcome.NOT_ESTABLISHED
    assert found["two_make_two"] is Outcome.NOT_ESTABLISHED


def test_a_count_that_does_not_start_at_nothing_is_refuted() -> None:
    spec = Spec("start")
    spec.const("many")
    spec.var("on", Job, init=True, module="m")
    spec.var("sum", to=IntSort(0, "many"), init=0, module="m")

    @spec.action(by="x")
    def turn_off(s: State, j: Job) -> None:
        s.require(s.on[j] & (s.sum >= 1))
        s.on[j] = False
        s.sum = s.sum - 1

    @spec.count("sum", over=Job)
    def those_on(s: State, j: Job) -> Expr:
        return s.on[j]  # type: ignore[no-any-return]

    assert outcomes(prove(spec.seal()))["sum is the number it counts"] is Outcome.REFUTED


def test_parameters_of_one_name_are_not_one_parameter() -> None:
    spec = Spec("names")
    spec.var("a", Job, module="m")
    spec.var("b", Job, module="m")

    @spec.action(by="x")
    def mark(s: State, j: Job) -> None:
        s.a[j] = True

    @spec.action(by="x")
    def spill(s: State, j: Job) -> None:
        s.require(s.a[j])
        s.b[:] = lambda k: s.b[k] | (k != j)

    @spec.safety()
    def only_marked_ones_are_spilled(s: State, j: Job) -> Implication:
        return when(s.b[j]).then(s.a[j])

    proof = prove(spec.seal())
    assert outcomes(proof)["only_marked_ones_are_spilled"] is Outcome.NOT_ESTABLISHED
    (failure,) = proof.failures
    assert failure.counterexample is not None
    assert dict(failure.counterexample.chosen) == {"j": "j0"}
    assert dict(failure.counterexample.falls_for) == {"j_": "j1"}


def test_a_bound_variable_is_not_captured() -> None:
    spec = Spec("capture")
    spec.var("likes", User, User, module="m")
    spec.var("alone", User, init=True, module="m")

    @spec.action(by="x")
    def befriend(s: State, u: User, v: User) -> None:
        s.likes[u, :] = lambda w: (w == v) | exists(User, lambda x: s.likes[x, w] & (x == u))
        s.alone[u] = False

    @spec.safety()
    def nobody_alone_likes_anybody(s: State, u: User) -> Implication:
        return when(s.alone[u]).then(forall(User, lambda x: ~s.likes[u, x]))

    @spec.safety()
    def nobody_alone_is_liked(s: State, u: User) -> Implication:
        return when(s.alone[u]).then(forall(User, lambda x: ~s.likes[x, u]))

    found = outcomes(prove(spec.seal()))
    assert found["nobody_alone_likes_anybody"] is Outcome.HOLDS
    assert found["nobody_alone_is_liked"] is Outcome.NOT_ESTABLISHED


def test_a_parameter_that_a_quantifier_binds_is_refused() -> None:
    machine = relay().seal()
    action = machine.action("raise_level")
    (param,) = action.params
    with pytest.raises(DefinitionError, match="also bound by a quantifier"):
        after(t.ForAll((param.var,), t.Read("level", (param.var,), IntSort(0, 1))), action)


def test_a_step_property_speaks_of_steps_that_leave_its_variables_alone() -> None:
    spec = Spec("stutter")
    spec.var("on", module="m")
    spec.var("other", module="m")

    @spec.action(by="x")
    def turn_on(s: State) -> None:
        s.require(~s.on)
        s.on = True

    @spec.action(by="x")
    def elsewhere(s: State) -> None:
        s.other = ~s.other

    @spec.step()
    def it_stays_on(s: State) -> Implication:
        return when(s.old.on).then(s.on)

    # The language refuses a step property that not every idle step has; the engine does not rely on that.
    machine = spec.seal()
    on = t.Read("on", (), BOOL, primed=True)
    wrong = replace(
        machine.claim("it_stays_on"),
        name="it_was_off",
        antecedent=on,
        consequent=t.neg(replace(on, primed=False)),
    )
    proof = prove(replace(machine, properties=(*machine.properties, wrong), _index={}))
    assert outcomes(proof)["it_stays_on"] is Outcome.HOLDS
    assert outcomes(proof)["it_was_off"] is Outcome.NOT_ESTABLISHED
    assert [r.obligation.label for r in proof.failures] == [UNTOUCHED]


class Shrug:
    """A solver that knows nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def run(self, commands: str) -> str:
        return "unknown" if "check-sat" in commands else ""


def test_unknown_is_not_established(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover_module, "Z3", Shrug)
    proof = prove(tickets().seal(), jobs=1)
    asked = [r for r in proof.results if r.obligation.kind != "enabled" and not r.obligation.frame]
    assert all(r.status is Answer.UNKNOWN and r.retried for r in asked)
    assert {r.note for r in asked} == {"the solver answers unknown"}
    assert set(outcomes(proof).values()) == {Outcome.NOT_ESTABLISHED, Outcome.HOLDS}
    assert outcomes(proof)["every action is possible"] is Outcome.HOLDS


def test_seeds_that_contradict_each_other_establish_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fickle(Shrug):
        def __init__(self, seed: int, *_: object) -> None:
            self.seed = seed

        def run(self, commands: str) -> str:
            if "get-unsat-core" in commands:
                return "()"
            return ("sat" if self.seed else "unsat") if "check-sat" in commands else ""

    monkeypatch.setattr(prover_module, "Z3", Fickle)
    proof = prove(tickets().seal(), jobs=1)
    notes = {r.note for r in proof.failures}
    assert notes == {"the seeds contradict each other"}


def test_a_limit_of_one_session_is_not_one_of_the_next() -> None:
    limited = Z3()
    limited.run("(set-option :rlimit 1)(set-option :timeout 1)")
    assert Z3().run("(declare-const a Bool)(assert (and a (not a)))(check-sat)") == "unsat"
