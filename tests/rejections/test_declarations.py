"""State variables, constants, lifecycles and counts that are ill-formed."""

from __future__ import annotations

from typing import Any

from tests.rejections.notebook import Block, Cases, Light, Request, Taste

from vllm_lifecycle.spec.lang.build import State
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import IntSort

cases = Cases()
rejects = cases.rejects
SWITCH: dict[Any, Any] = {Light.RED: {Light.GREEN}, Light.GREEN: ()}


@rejects("free is declared twice: use the first declaration or another name")
def variable_declared_twice(spec: Spec) -> None:
    spec.var("free", module="m")


@rejects("top is declared twice")
def variable_named_as_a_constant(spec: Spec) -> None:
    spec.var("top", module="m")


@rejects("size is declared twice")
def constant_named_as_a_variable(spec: Spec) -> None:
    spec.const("size")


@rejects("top is declared twice")
def constant_declared_twice(spec: Spec) -> None:
    spec.const("top")


@rejects("require cannot name a state variable: it is a word of the language")
def variable_named_as_a_word(spec: Spec) -> None:
    spec.var("require", module="m")


@rejects("old cannot name a state variable: it is a word of the language")
def variable_named_old(spec: Spec) -> None:
    spec.var("old", module="m")


@rejects("lamp holds Light, but starts as False: give an initial value of that sort")
def initial_value_left_out(spec: Spec) -> None:
    spec.var("lamp", to=Light, module="m")


@rejects("lamp holds Light, but starts as Taste.SWEET")
def initial_value_of_another_enum(spec: Spec) -> None:
    spec.var("lamp", to=Light, init=Taste.SWEET, module="m")


@rejects("lamp holds Bool, but starts as 1")
def initial_number_for_a_truth_value(spec: Spec) -> None:
    spec.var("lamp", init=1, module="m")


@rejects("number starts as 5, outside 0..3: start within the range")
def initial_value_out_of_range(spec: Spec) -> None:
    spec.var("number", to=IntSort(0, 3), init=5, module="m")


@rejects("number starts as 2, outside 0..top: start within the range")
def initial_value_above_the_least_constant(spec: Spec) -> None:
    spec.var("number", to=IntSort(0, "top"), init=2, module="m")


@rejects("unknown constant roof: declare it with spec.const before its first use")
def range_below_an_unknown_constant(spec: Spec) -> None:
    spec.var("number", to=IntSort(0, "roof"), init=0, module="m")


@rejects("2..1 is empty: write IntSort(low, high) with low <= high")
def empty_range(spec: Spec) -> None:
    spec.var("number", to=IntSort(2, 1), init=2, module="m")


@rejects("owner cannot hold an individual: declare a relation, with Request as one more argument")
def variable_that_holds_an_individual(spec: Spec) -> None:
    spec.var("owner", Block, to=Request, module="m")


@rejects("<class 'int'> is not a sort")
def argument_that_is_no_sort(spec: Spec) -> None:
    spec.var("lamp", int, module="m")


# lifecycles


@rejects("lamp: unknown state Taste.SWEET: Light has RED, GREEN, DARK")
def lifecycle_with_a_foreign_state(spec: Spec) -> None:
    spec.lifecycle("lamp", "light", {Light.RED: {Taste.SWEET}})


@rejects("lamp: GREEN has no row: list its successors, `GREEN: set()` if none")
def lifecycle_with_a_state_without_row(spec: Spec) -> None:
    spec.lifecycle("lamp", "light", {Light.RED: {Light.GREEN}})


@rejects("lamp: free holds Bool: a lifecycle needs a variable with enum states")
def lifecycle_of_a_truth_value(spec: Spec) -> None:
    spec.lifecycle("lamp", "free", {})


@rejects("lamp: unknown state variable lamp")
def lifecycle_of_an_unknown_variable(spec: Spec) -> None:
    spec.lifecycle("lamp", "lamp", {})


@rejects("lamp: light takes 1 argument(s): give an index of that length")
def lifecycle_with_a_long_index(spec: Spec) -> None:
    spec.lifecycle("lamp", "light", SWITCH, index=(None, None))


@rejects("lamp: light takes 1 argument(s) (Request): Taste given for Request")
def lifecycle_with_an_index_of_another_sort(spec: Spec) -> None:
    spec.lifecycle("lamp", "light", SWITCH, index=(Taste.SWEET,))


@rejects("lamp: this lifecycle is defined twice: give one of them another name")
def lifecycle_defined_twice(spec: Spec) -> None:
    for _ in range(2):
        spec.lifecycle("lamp", "light", SWITCH)


# counts


@rejects("number: free holds Bool: a count needs a counter with a number")
def count_of_a_truth_value(spec: Spec) -> None:
    @spec.count("free", over=Request)
    def number(s: State, b: Block, r: Request) -> Any:
        return s.table[r, b]


@rejects("number: the parameters must be those of size, then the one counted over")
def count_with_other_parameters(spec: Spec) -> None:
    @spec.count("size", over=Block)
    def number(s: State, r: Request) -> Any:
        return s.light[r] == Light.RED


@rejects("number: the function must say whether, or how often, the individual counts")
def count_of_states(spec: Spec) -> None:
    @spec.count("size", over=Request)
    def number(s: State, r: Request) -> Any:
        return s.light[r]


@cases.each()
def test_rejected(name: str) -> None:
    cases.check(name)
