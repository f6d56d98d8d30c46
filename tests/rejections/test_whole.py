"""What only the whole specification shows, and wrong questions to a machine or a domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.rejections.notebook import Block, Light, Request, notebook

from vllm_lifecycle.spec.lang.build import State, exists
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.evaluate import Context, Domain, evaluate, initial, step
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort
from vllm_lifecycle.spec.lang.wellformed import check_machine

Rows = dict[Any, Any]


def test_the_notebook_itself_is_well_formed() -> None:
    spec = notebook()
    spec.lifecycle("light", "light", {Light.RED: {Light.GREEN}, Light.GREEN: ()})
    assert len(spec.seal().actions) == 2


def sealed(spec: Spec) -> str:
    """The message with which sealing is refused."""
    with pytest.raises(DefinitionError) as refusal:
        spec.seal()
    return str(refusal.value)


def with_lifecycle(rows: Rows) -> Spec:
    spec = notebook()
    spec.lifecycle("lamp", "light", rows)
    return spec


def test_a_specification_without_action() -> None:
    assert "empty has no action: define one with @spec.action" in sealed(Spec("empty"))


def test_a_state_that_no_action_enters() -> None:
    message = sealed(with_lifecycle({Light.RED: {Light.GREEN}, Light.GREEN: (), Light.DARK: ()}))
    assert "lifecycle lamp: no action can bring it to DARK: add the action, or remove the state" in message


def test_an_edge_that_is_not_listed() -> None:
    message = sealed(with_lifecycle({Light.RED: ()}))
    assert "lifecycle lamp: switch takes RED to GREEN, which the successor list does not allow" in message
    assert "guard the action, or list GREEN after RED" in message


def test_a_listed_edge_that_no_action_takes() -> None:
    message = sealed(with_lifecycle({Light.RED: {Light.GREEN}, Light.GREEN: {Light.RED}}))
    assert "lifecycle lamp: GREEN -> RED is listed, but no action takes it" in message


def test_a_property_whose_witness_is_gone() -> None:
    machine = replace(notebook().seal(), witnesses=(), _index={})
    with pytest.raises(DefinitionError, match="a_free_block_is_in_no_table has no witness: return when"):
        check_machine(machine)


def test_quantifiers_that_alternate_in_a_cycle() -> None:
    spec = notebook()

    @spec.safety()
    def every_request_has_a_block(s: State, r: Request) -> Implication:
        return when(s.light[r] == Light.GREEN).then(exists(Block, lambda b: s.table[r, b]))

    spec.seal()

    @spec.safety()
    def a_held_block_has_a_request(s: State, b: Block) -> Implication:
        return when(~s.free[b]).then(exists(Request, lambda r: s.table[r, b]))

    message = sealed(spec)
    assert "the quantifiers alternate in a cycle: Request -> Block (every_request_has_a_block)" in message
    assert "Block -> Request (a_held_block_has_a_request)" in message
    assert "state one of them by a relation or a ghost instead of 'there is'" in message


def test_an_alternation_within_one_sort() -> None:
    spec = notebook()

    @spec.safety()
    def everybody_has_another(s: State, r: Request) -> Implication:
        other = exists(Request, lambda q: (s.light[q] == Light.RED) & ~(q == r))
        return when(s.light[r] == Light.GREEN).then(other)

    assert "Request -> Request (everybody_has_another)" in sealed(spec)


# questions

MACHINE = notebook().seal()
DOMAIN = Domain({"Request": ("r0",), "Block": ("b0",)}, {"top": 1})


def value_of_a_step_claim_in_one_state() -> object:
    spec = notebook()

    @spec.step()
    def the_size_grows(s: State) -> Implication:
        return always(s.old.size <= s.size)

    return evaluate(spec.seal().claim("the_size_grows").closed, Context(DOMAIN, initial(MACHINE, DOMAIN)), {})


def step_out_of_range() -> object:
    spec = notebook()

    @spec.action(by="client")
    def grow(s: State) -> None:
        s.size = s.size + 2

    machine = spec.seal()
    state = initial(machine, DOMAIN)
    for _ in range(2):
        state = step(machine, machine.action("grow"), state, DOMAIN, {})
    return state


def projection_that_needs_another_module() -> object:
    spec = notebook()

    @spec.action(by="client")
    def copy(s: State, r: Request) -> None:
        s.table[r, :] = lambda b: s.free[b]

    return spec.seal().project(["m"])


QUESTIONS: list[tuple[Callable[[], object], str]] = [
    (lambda: MACHINE.action("swich"), "unknown action swich: did you mean switch?"),
    (lambda: MACHINE.claim("zzz"), "unknown property zzz: 1 are defined; list them with `explain`"),
    (lambda: MACHINE.project(["k"]), "unknown module k: choose from m, n"),
    (lambda: MACHINE.with_features(["day"]), "unknown feature day: choose from core, night"),
    (
        lambda: Domain({}).of(MACHINE.var("free").args[0]),
        "gives no individuals of sort Block: give it a size",
    ),
    (lambda: Domain({}).of(IntSort(0, "top")), "constant top has no value: give it one in the scope"),
    (
        value_of_a_step_claim_in_one_state,
        "size is read in the state after a step, but only one state is given",
    ),
    (step_out_of_range, "grow takes size() to 4, outside 0..3: guard the action"),
    (projection_that_needs_another_module, "copy updates table from free: include the module of those too"),
]


@pytest.mark.parametrize(("ask", "message"), QUESTIONS, ids=[m.split(":")[0] for _, m in QUESTIONS])
def test_a_wrong_question(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        ask()
    assert message in str(refusal.value)
