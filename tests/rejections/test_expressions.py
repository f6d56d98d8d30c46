"""Expressions and assignments that are ill-formed: wrong sort, wrong arity, truth value, assigned twice."""

from __future__ import annotations

from tests.rejections.notebook import Block, Cases, Light, Request, Taste

from vllm_lifecycle.spec.lang.build import State, exists, forall, ite

cases = Cases()
body = cases.body


@body("an expression has no truth value: write `a & b`")
def truth_by_if(s: State, r: Request) -> None:
    if s.light[r] == Light.RED:
        s.light[r] = Light.GREEN


@body("an expression has no truth value")
def truth_by_not(s: State, b: Block) -> None:
    s.require(not s.free[b])


@body("an expression has no truth value")
def truth_by_and(s: State, b: Block) -> None:
    s.require(s.free[b] and s.size == 0)


@body("an expression has no truth value")
def truth_by_in(s: State, r: Request) -> None:
    s.require(s.light[r] in (Light.RED, Light.GREEN))


@body("an expression has no truth value")
def truth_by_chain(s: State) -> None:
    s.require(1 <= s.size <= 2)


@body("cannot compare Light with Taste: compare terms of one sort")
def member_of_another_enum(s: State, r: Request) -> None:
    s.require(s.light[r] == Taste.SWEET)


@body("cannot compare Light with Taste")
def one_of_another_enum(s: State, r: Request) -> None:
    s.require(s.light[r].is_in(Light.RED, Taste.SWEET))


@body("cannot compare Request with Block")
def individuals_of_two_sorts(s: State, r: Request, b: Block) -> None:
    s.require(r == b)


@body("cannot compare Light with 1..1")
def enum_with_number(s: State, r: Request) -> None:
    s.require(s.light[r] == 1)


@body("a number is needed here, but this is of sort Light: count it with one_if, or compare with ==")
def enum_below_number(s: State, r: Request) -> None:
    s.require(s.light[r] <= 1)


@body("a number is needed here, but this is of sort Bool")
def sum_of_truth_values(s: State, b: Block) -> None:
    s.size = s.size + s.free[b]


@body("a truth value is needed here, but this is of sort 0..3: compare it with something")
def number_as_condition(s: State) -> None:
    s.require(s.size)


@body("a truth value is needed here, but this is of sort Light")
def enum_in_conjunction(s: State, r: Request, b: Block) -> None:
    s.require(s.free[b] & s.light[r])


@body("the branches of ite are Light and Taste: give both the same sort")
def branches_of_two_sorts(s: State, r: Request) -> None:
    s.light[r] = ite(s.size == 0, Light.RED, Taste.SWEET)


@body("'RED' is not an expression: use a parameter, a state read, a bool, an int or an enum member")
def text_as_value(s: State, r: Request) -> None:
    s.light[r] = "RED"


@body(
    "write forall(Sort, ..., lambda x, ...: condition): sorts first, then one function of as many parameters"
)
def quantifier_without_function(s: State) -> None:
    s.require(forall(Block, s.size == 0))


@body("write forall(Sort, ..., lambda x, ...: condition): sorts first, then one function")
def quantifier_without_sort(s: State) -> None:
    s.require(exists(lambda b: s.free[b]))


@body("write forall(Sort, ..., lambda x, ...: condition): sorts first, then one function")
def quantifier_of_too_many(s: State) -> None:
    s.require(forall(Block, lambda b, r: s.free[b] | (s.light[r] == Light.RED)))


@body(
    "<class 'int'> is not a sort: annotate with an Individual subclass, an Enum, bool, SetOf[...] or Annotated[int,"
)
def quantifier_over_numbers(s: State) -> None:
    s.require(exists(int, lambda n: s.size == n))


@body("a truth value is needed here")
def quantifier_of_a_number(s: State) -> None:
    s.require(exists(Block, lambda _: s.size))


@body("unknown state variable lamp: declare it with spec.var, or use one of light, table, free")
def unknown_variable_read(s: State, r: Request) -> None:
    s.require(s.lamp[r])


@body("unknown state variable lamp")
def unknown_variable_assigned(s: State) -> None:
    s.lamp = True


@body("table takes 2 argument(s) (Request, Block), not 1")
def too_few_arguments(s: State, r: Request) -> None:
    s.require(s.table[r])


@body("free takes 1 argument(s) (Block), not 2")
def too_many_arguments_assigned(s: State, r: Request, b: Block) -> None:
    s.free[r, b] = True


@body("free takes 1 argument(s) (Block), not 0")
def no_arguments_assigned(s: State) -> None:
    s.free = True


@body("table takes 2 argument(s) (Request, Block): Block given for Request")
def arguments_in_the_wrong_order(s: State, r: Request, b: Block) -> None:
    s.require(s.table[b, r])


@body("table takes 2 argument(s) (Request, Block): Block given for Request")
def assigned_in_the_wrong_order(s: State, r: Request, b: Block) -> None:
    s.table[b, r] = True


@body("light takes arguments: write s.light[...]")
def variable_without_arguments(s: State) -> None:
    s.require(s.light == Light.RED)


@body("free takes arguments: write s.free[...]")
def truth_of_a_variable(s: State) -> None:
    if s.free:
        s.size = 1


@body("free takes arguments: write s.free[...]")
def membership_in_a_variable(s: State, b: Block) -> None:
    s.require(b in s.free)


@body("light holds Light, not Taste")
def value_of_another_enum(s: State, r: Request) -> None:
    s.light[r] = Taste.SWEET


@body("free holds Bool, not 1..1")
def number_for_a_truth_value(s: State, b: Block) -> None:
    s.free[b] = 1


@body("light is assigned twice: write one assignment, `s.light[..., :] = lambda x: ...`, for all places")
def assigned_twice(s: State, r: Request, q: Request) -> None:
    s.light[r] = Light.RED
    s.light[q] = Light.GREEN


@body("size is assigned twice")
def plain_variable_assigned_twice(s: State) -> None:
    s.size = 1
    s.size = 2


@body("table is assigned at 1 open place(s): give a value, or a function of as many parameters")
def function_of_too_many_places(s: State, r: Request) -> None:
    s.table[r, :] = lambda b, c: s.free[b] & s.free[c]


@body("table is assigned at 0 open place(s)")
def function_without_open_place(s: State, r: Request, b: Block) -> None:
    s.table[r, b] = lambda c: s.free[c]


@body("slice(1, 2, None) is not an expression")
def bounded_slice(s: State) -> None:
    s.free[1:2] = True


@body("slice(None, None, None) is not an expression")
def slice_that_is_read(s: State, r: Request) -> None:
    s.require(s.table[r, :])


@body("free cannot be assigned here: only an action changes the state")
def old_state_assigned(s: State, b: Block) -> None:
    s.old.free[b] = True


@cases.each()
def test_rejected(name: str) -> None:
    cases.check(name)
