"""Actions, their parameters, and mutants of them that are ill-formed."""

from __future__ import annotations

from typing import Annotated, Any

from tests.rejections.notebook import Block, Cases, Light, Request

from vllm_lifecycle.spec.lang.build import SetOf, State, one_if
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import IntSort

cases = Cases()
body, rejects = cases.body, cases.rejects


@body("require() after an assignment would read the new state: put every require() first")
def guard_after_assignment(s: State, r: Request) -> None:
    s.light[r] = Light.GREEN
    s.require(s.size == 0)


@body("an action needs a guard or an assignment")
def nothing_at_all(s: State) -> None:
    pass


@body("an action returns nothing: assign to the state instead")
def something_returned(s: State, r: Request) -> Any:
    s.light[r] = Light.RED
    return s.light[r]


@body("the guards contradict each other on their face: the action can never be taken; drop one")
def contradicting_guards(s: State, b: Block) -> None:
    s.require(s.free[b])
    s.require(~s.free[b])
    s.size = 1


@body("the guards contradict each other on their face")
def false_guard(s: State) -> None:
    s.require(False)
    s.size = 1


@body("a guard reads the ghost truth: a scheduler cannot know it; guard on ordinary state instead")
def ghost_in_a_guard(s: State, b: Block) -> None:
    s.require(s.truth[b])
    s.free[b] = False


@body("free is computed from the ghost truth: make free a ghost, or read ordinary state")
def ghost_in_an_update(s: State) -> None:
    s.free[:] = lambda b: s.truth[b]


@body("size is computed from the ghost truth")
def ghost_in_a_number(s: State, b: Block) -> None:
    s.size = one_if(s.truth[b])


@body("parameter q is never used: leave it out")
def unused_parameter(s: State, r: Request, q: Request) -> None:
    s.light[r] = Light.DARK


@body("parameter chosen is never used: leave it out")
def unused_set(s: State, chosen: SetOf[Block]) -> None:
    s.size = 0


@body("parameter r needs a sort: write `r: Request` or `r: SetOf[Block]`")
def parameter_without_sort(s: State, r) -> None:  # type: ignore[no-untyped-def]
    s.light[r] = Light.RED


@body("<class 'int'> is not a sort: annotate with")
def parameter_of_a_plain_int(s: State, n: int) -> None:
    s.size = n


@body("parameter n: write Annotated[int, IntSort(low, high)]")
def annotated_without_range(s: State, n: Annotated[int, "small"]) -> None:
    s.size = n


@body("unknown constant roof: declare it with spec.const before its first use")
def parameter_below_an_unknown_constant(s: State, n: Annotated[int, IntSort(0, "roof")]) -> None:
    s.size = n


@body("3..1 is empty: write IntSort(low, high) with low <= high")
def parameter_of_an_empty_range(s: State, n: Annotated[int, IntSort(3, 1)]) -> None:
    s.size = n


@rejects("action switch is defined twice: give one of them another name")
def action_defined_twice(spec: Spec) -> None:
    @spec.action(by="client")
    def switch(s: State, r: Request) -> None:
        s.light[r] = Light.RED


# sets


@body("chosen is a set of Block, not of Request")
def member_of_another_sort(s: State, r: Request, chosen: SetOf[Block]) -> None:
    s.require(chosen[r])


@body("chosen is a set: write chosen[x] for membership, and forall or exists to compare sets")
def membership_by_in(s: State, b: Block, chosen: SetOf[Block]) -> None:
    s.require(b in chosen)


@body("chosen is a set: write chosen[x] for membership")
def sets_compared(s: State, chosen: SetOf[Block], others: SetOf[Block]) -> None:
    s.require(chosen == others)


@body("chosen is a set: write chosen[x] for membership")
def truth_of_a_set(s: State, chosen: SetOf[Block]) -> None:
    if chosen:
        s.size = 1


@body("the set chosen is not an expression: use a parameter")
def set_as_an_argument(s: State, chosen: SetOf[Block]) -> None:
    s.require(s.free[chosen])


@body("<class 'int'> is not a sort")
def set_of_numbers(s: State, chosen: SetOf[int]) -> None:  # type: ignore[type-var]
    s.require(chosen[1])


# mutants


@rejects("broken: unknown action swich: a mutant changes an action that exists")
def mutant_of_an_unknown_action(spec: Spec) -> None:
    def broken(s: State, r: Request) -> None:
        s.light[r] = Light.DARK

    spec.vary("swich", broken)


@rejects("broken: switch has no guard labelled 'it is blue': choose from 'it is red'")
def mutant_without_an_unknown_guard(spec: Spec) -> None:
    def broken(s: State, r: Request) -> None:
        s.light[r] = Light.DARK

    spec.vary("switch", broken, drop=["it is blue"])


@rejects("broken: free is computed from the ghost truth")
def mutant_that_reads_a_ghost(spec: Spec) -> None:
    def broken(s: State, r: Request) -> None:
        s.free[:] = lambda b: s.truth[b]

    spec.vary("switch", broken)


@cases.each()
def test_rejected(name: str) -> None:
    cases.check(name)
