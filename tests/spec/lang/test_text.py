"""The text of a term means what the term means: read back by a small reader of our own, it evaluates to the same value."""

from __future__ import annotations

import re
from enum import Enum
from itertools import product
from typing import Any

import pytest

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.build import Individual, SetOf, State, exists, forall, ite
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lang.sorts import BOOL, EnumSort, IntSort, UninterpretedSort


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"
    GREEN = "GREEN"


class Request(Individual):
    """Individuals of the example."""


class Block(Individual):
    """Individuals of the example."""


spec = Spec("example")
spec.var("colour", Request, to=Colour, init=Colour.RED, module="m")
spec.var("table", Request, Block, module="m")
spec.var("free", Block, init=True, module="m")
spec.var("level", Block, to=IntSort(0, 3), init=0, module="m")
spec.var("size", to=IntSort(0, 3), init=0, module="m")


@spec.action(by="client")
def paint(s: State, r: Request, blocks: SetOf[Block]) -> None:
    s.require(s.colour[r] == Colour.RED, "it is red")
    s.require(forall(Block, lambda b: blocks[b] >> s.free[b]))
    s.colour[r] = Colour.BLUE
    s.table[r, :] = lambda b: blocks[b]
    s.free[:] = lambda b: s.free[b] & ~blocks[b]
    s.size = s.size + 1


@spec.action(by="client")
def wash(s: State, r: Request) -> None:
    s.require(s.colour[r].is_in(Colour.BLUE, Colour.GREEN))
    s.colour[r] = ite(s.size <= 1, Colour.RED, Colour.GREEN)
    s.table[r, :] = False
    s.free[:] = lambda b: ~exists(Request, lambda r: s.table[r, b])


def _count_up(s: State, b: Block) -> None:
    s.size = ite(s.free[b], 3, 0)
    s.level[b] = 1


@spec.safety()
def a_free_block_is_in_no_table(s: State, b: Block, r: Request) -> Implication:
    return when(s.free[b]).then(~s.table[r, b])


@spec.step()
def a_red_request_stays_or_turns_blue(s: State, r: Request) -> Implication:
    return when(s.old.colour[r] == Colour.RED).then(s.colour[r].is_in(Colour.RED, Colour.BLUE))


@spec.progress()
def a_blue_request_turns_red(s: State, r: Request) -> Implication:
    return when(s.colour[r] == Colour.BLUE).then(s.colour[r] == Colour.RED)


MACHINE = spec.seal()


def test_claims_read_as_sentences() -> None:
    assert [text.claim(p) for p in MACHINE.properties] == [
        "for all b, r: free[b] -> not table[r, b]",
        "for all r: colour[r] = RED -> colour'[r] in {RED, BLUE}",
        "for all r: colour[r] = BLUE ~> colour[r] = RED",
    ]


def test_guards_and_updates_read_as_sentences() -> None:
    paint_row, wash_row = MACHINE.actions
    assert text.guards(paint_row) == (
        ("it is red", "colour[r] = RED"),
        ("", "for all b: b in blocks -> free[b]"),
    )
    assert text.updates(paint_row) == (
        "colour'[r] = BLUE",
        "table'[r, b] = (b in blocks)",
        "free'[b] = false where b in blocks",
        "size' = size + 1",
    )
    assert text.guards(wash_row) == (("", "colour[r] in {BLUE, GREEN}"),)
    assert text.updates(wash_row) == (
        "colour'[r] = (if size <= 1 then RED else GREEN)",
        "table'[r, b] = false for all b",
        "free'[b] = (not (there is r2: r2 != r and table[r2, b]))",
    )


def test_an_update_by_cases_says_else_and_leaves_out_what_stays() -> None:
    row = spec.build_action(_count_up, by="client", feature="core", fairness=Fairness.NONE, source={})
    assert text.updates(row) == (
        "size' = 3 where free[b]",
        "else size' = 0",
        "level'[b] = 1",
    )


def test_witnesses_say_whether_they_speak_of_a_state_or_a_step() -> None:
    assert [text.witness(w) for w in MACHINE.witnesses] == [
        "some reachable state: there is b, r: free[b]",
        "some reachable state: there is r: colour[r] = RED",
        "some reachable state: there is r: colour[r] = BLUE",
    ]


def test_concrete_values_are_readable() -> None:
    request = UninterpretedSort("Request")
    assert text.value(Colour.RED) == "RED"
    assert text.value(frozenset((1, 0)), request) == "{r0, r1}"
    assert text.value(False) == "false"
    assert text.cell("table", (0, 1), (request, UninterpretedSort("Block")), primed=True) == "table'[r0, b1]"
    assert text.cell("size", ()) == "size"


def test_two_variables_of_one_name_are_told_apart() -> None:
    request = UninterpretedSort("Request")
    outer, inner = t.Var("r.1", request), t.Var("r.2", request)
    term = t.ForAll((outer,), t.Exists((inner,), t.Eq(outer, inner)))
    assert text.text(term) == "for all r: there is r2: r = r2"


P, Q, R = (t.Read(n, (), BOOL) for n in "pqr")
X = t.Read("x", (), EnumSort(Colour))
N = t.Read("n", (), IntSort(0, 3))
RED, BLUE = t.member(Colour.RED), t.member(Colour.BLUE)
SAMPLES = [
    t.disj(t.neg(P), Q),
    t.disj(t.neg(P), t.neg(Q)),
    t.disj(t.neg(P), t.neg(Q), R),
    t.disj(P, t.neg(Q)),
    t.neg(t.disj(P, Q)),
    t.neg(t.conj(P, t.disj(Q, R))),
    t.conj(t.disj(P, Q), t.disj(t.neg(P), R)),
    t.disj(t.conj(P, Q), R),
    t.Eq(P, t.disj(Q, R)),
    t.neg(t.Eq(P, t.Eq(Q, R))),
    t.disj(t.Eq(X, RED), t.Eq(X, BLUE)),
    t.neg(t.disj(t.Eq(X, RED), t.Eq(X, BLUE))),
    t.conj(t.neg(t.Eq(X, RED)), t.neg(t.Eq(X, BLUE))),
    t.disj(t.neg(t.Eq(X, RED)), P),
    t.conj(P, t.implies(Q, t.implies(R, P))),
    t.implies(t.implies(P, Q), R),
    t.Ite(P, Q, t.Ite(Q, R, P)),
    t.conj(t.Ite(P, Q, R), Q),
    t.Le(t.Sub(N, t.Sub(t.integer(2), N)), t.integer(1)),
    t.Le(t.integer(1), N),
    t.neg(t.Le(t.integer(1), N)),
    t.neg(t.Le(t.Add(N, t.Add(N, t.integer(1))), t.integer(3))),
]


@pytest.mark.parametrize("term", SAMPLES, ids=text.text)
def test_text_means_what_the_term_means(term: t.Term) -> None:
    shown = text.text(term)
    python = compile(_to_python(shown), shown, "eval")
    for p, q, r, x, n in product((False, True), (False, True), (False, True), Colour, range(4)):
        state = {"p": p, "q": q, "r": r, "x": x, "n": n}
        names = {**state, **{c.name: c for c in Colour}, "true": True, "false": False}
        assert eval(python, {}, names) == _value(term, state), (shown, state)


def _to_python(shown: str) -> str:
    """Rewrite innermost parentheses first; `->` becomes `<=` on truth values, `if c then a else b` Python's own form."""
    while match := re.search(r"\(([^()]*)\)", shown):
        shown = shown[: match.start()] + "«" + _flat(match[1]) + "»" + shown[match.end() :]
    return _flat(shown).replace("«", "(").replace("»", ")")


def _flat(shown: str) -> str:
    if shown.startswith("if "):
        cond, rest = shown[3:].split(" then ", 1)
        then, other = rest.split(" else ", 1)
        return f"«{_flat(then)}» if «{_flat(cond)}» else «{_flat(other)}»"
    for sign, operator in ((" <-> ", "=="), (" -> ", "<=")):
        if sign in shown:
            left, right = shown.split(sign, 1)
            return f"bool«{_flat(left)}» {operator} bool«{_flat(right)}»"
    return re.sub(r"(?<![<>!=])=(?!=)", "==", shown)


def _value(term: t.Term, state: dict[str, Any]) -> Any:
    from vllm_lifecycle.spec.lang.evaluate import Context, Domain, evaluate

    return evaluate(term, Context(Domain({}), {(k, ()): v for k, v in state.items()}), {})
