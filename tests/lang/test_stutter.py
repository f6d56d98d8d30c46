"""A claim that is found to allow stuttering holds of every step that changes nothing."""

from __future__ import annotations

from hypothesis import given, settings
from tests.lang.vocabulary import COLOUR, DOMAIN, PARAMS, Binding, Colour, State, terms, worlds

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import Context, evaluate
from vllm_lifecycle.spec.lang.sorts import BOOL
from vllm_lifecycle.spec.lang.stutter import allows_stuttering
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

OLD, NEW = t.Read("tint", (), COLOUR), t.Read("tint", (), COLOUR, primed=True)
RED, BLUE = t.Lit(Colour.RED, COLOUR), t.Lit(Colour.BLUE, COLOUR)
ON = t.Read("on", (), BOOL)


@settings(max_examples=500)
@given(terms(BOOL, PARAMS, 3, primed=True), worlds(4))
def test_what_allows_stuttering_holds_when_nothing_changes(
    claim: t.Term, seen: list[tuple[State, Binding]]
) -> None:
    if allows_stuttering(claim):
        assert all(evaluate(claim, Context(DOMAIN, state, state), binding) for state, binding in seen)


def test_what_changed_changed_rightly() -> None:
    assert allows_stuttering(t.implies(t.neg(t.equal(OLD, NEW)), t.equal(NEW, BLUE)))
    assert allows_stuttering(t.implies(t.conj(t.equal(OLD, RED), t.equal(NEW, BLUE)), ON))
    assert allows_stuttering(
        t.implies(t.conj(ON, t.equal(OLD, RED)), t.disj(t.equal(NEW, BLUE), t.equal(NEW, RED)))
    )
    assert not allows_stuttering(t.neg(t.equal(OLD, NEW)))
    assert not allows_stuttering(t.implies(t.equal(OLD, RED), t.equal(NEW, BLUE)))
    assert not allows_stuttering(t.implies(ON, t.neg(t.Read("on", (), BOOL, primed=True))))


def test_every_step_property_of_the_specification_allows_it() -> None:
    steps = [p for p in SYSTEM.properties if p.kind == "step"]
    assert len(steps) >= 5
    assert all(allows_stuttering(p.body) for p in steps)
