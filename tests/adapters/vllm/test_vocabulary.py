"""The data of the explorer, without vLLM: bindings cover the specification, claims compile, sequences are plain data."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Hashable, Iterator
from itertools import product
from typing import Any

import pytest

from vllm_lifecycle.adapters import vllm as public
from vllm_lifecycle.adapters.vllm.binding import BOUND, UNBOUND
from vllm_lifecycle.adapters.vllm.config import Unusable, load_class, vllm_version
from vllm_lifecycle.adapters.vllm.correspondence import TABLE, MissingSeam, readers
from vllm_lifecycle.adapters.vllm.events import Abort, Add, Answer, Report, Schedule, describe, party
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.questions import POLICY, PROMISES
from vllm_lifecycle.adapters.vllm.saved import EVENTS
from vllm_lifecycle.adapters.vllm.scope import Match, Scope
from vllm_lifecycle.adapters.vllm.verdicts import GOES_ON, LEAK, QUESTIONS, STUCK, SURVIVAL, SURVIVES, Judge
from vllm_lifecycle.spec.lang.evaluate import Context, Domain, assignments, evaluate
from vllm_lifecycle.spec.lang.sorts import BoolSort, EnumSort, IntSort
from vllm_lifecycle.spec.lang.sparse import Cells, Dense, Sparse, compile_claim, compile_count
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

PEOPLE: dict[str, tuple[Hashable, ...]] = {
    "Request": ("r0", "r1"),
    "Block": (1, 2),
    "Step": (0,),
    "Entry": ("e",),
}
NUMBERS = {const.name: 3 for const in SYSTEM.consts}


def test_every_state_variable_is_bound_or_excused() -> None:
    names = {var.name for var in SYSTEM.vars}
    assert set(BOUND) | set(UNBOUND) == names
    assert not set(BOUND) & set(UNBOUND)


def test_every_claim_is_judged_or_excused() -> None:
    judge = Judge(Scope("any", encoder="decoder-only"))
    judged = {claim.of.name for claim in judge.claims}
    assert judged | set(judge.unjudged) == {p.name for p in SYSTEM.properties}
    assert len(judged) >= 35


def test_claims_that_the_explorer_names_are_claims_of_the_specification() -> None:
    for name in (STUCK, LEAK, GOES_ON, SURVIVES, *SURVIVAL, *(QUESTIONS - POLICY - PROMISES)):
        assert SYSTEM.claim(name).name == name


def test_the_table_names_spec_variables() -> None:
    known = {var.name for var in SYSTEM.vars} | {"", "tracked", "queue", "references", "awake"}
    assert {row.spec for row in TABLE} <= known


def _random_state(source: random.Random, density: float) -> Sparse:
    domain = Domain(PEOPLE, NUMBERS)
    out: Sparse = {}
    for var in SYSTEM.vars:
        cells: Cells = {}
        for args in product(*(domain.of(sort) for sort in var.args)):
            if source.random() < density:
                value = source.choice(_values(var.sort))
                if value != var.init.value:
                    cells[args] = value
        out[var.name] = cells
    return out


def _values(sort: Any) -> tuple[Any, ...]:
    match sort:
        case BoolSort():
            return (False, True)
        case EnumSort():
            return sort.members
        case IntSort():
            return (0, 1, 2, 3)
    raise AssertionError(sort)


def _falls(claim: Any, before: Sparse, after: Sparse) -> Iterator[tuple[Any, ...]]:
    domain = Domain(PEOPLE, NUMBERS)
    context = Context(domain, Dense(SYSTEM, before), Dense(SYSTEM, after))  # type: ignore[arg-type]
    for binding in assignments(tuple(p.var for p in claim.params), domain):
        if not evaluate(claim.body, context, binding):
            yield tuple(binding.values())


@pytest.mark.parametrize(
    "claim", [p for p in SYSTEM.properties if p.kind != "progress"], ids=lambda p: p.name
)
def test_compiled_claims_agree_with_the_reference(claim: Any) -> None:
    check = compile_claim(SYSTEM, claim)
    source = random.Random(claim.name)
    for density in (0.0, 0.2, 0.5, 0.9, 0.5, 0.2):
        before, after = _random_state(source, density), _random_state(source, density)
        found = {tuple(b.values()) for b in check(before, after, PEOPLE, NUMBERS)}
        assert found == set(_falls(claim, before, after))


@pytest.mark.parametrize("count", SYSTEM.counts, ids=lambda c: c.counter)
def test_compiled_counts_agree_with_the_reference(count: Any) -> None:
    check, domain = compile_count(SYSTEM, count), Domain(PEOPLE, NUMBERS)
    source = random.Random(count.counter)
    for density in (0.0, 0.3, 0.8):
        state = _random_state(source, density)
        context = Context(domain, Dense(SYSTEM, state))  # type: ignore[arg-type]
        wrong = set()
        for where in assignments(tuple(p.var for p in count.args), domain):
            members = (
                evaluate(count.member, context, {**where, **w})
                for w in assignments((count.over.var,), domain)
            )
            if Dense(SYSTEM, state)[count.counter, tuple(where.values())] != sum(int(m) for m in members):
                wrong.add(tuple(where.values()))
        found = {tuple(b[p.name] for p in count.args) for b in check(state, state, PEOPLE, NUMBERS)}
        assert found == wrong


@pytest.mark.parametrize(
    ("span", "tokens"),
    [("none", 0), ("block", 8), ("middle", 7), ("most", 9), ("all", 10), ("unknown", None)],
)
def test_a_match_claims_that_many_tokens(span: Any, tokens: int | None) -> None:
    assert Match(span).tokens(10, 4) == tokens


def test_events_say_what_they_are_and_whose() -> None:
    add = Add("r0", 6, 2, match=Match("block", True), hold=True)
    assert (
        describe(add)
        == "add_request(r0): prompt 6, max_tokens 2 (connector holds: block (async), connector sends on finish)"
    )
    assert describe(Answer(stop="r0")) == "update_from_output(r0 samples its stop token)"
    assert [party(e) for e in (add, Schedule(), Answer(), Report("sent", "r0"), Abort("r0"))] == [
        "client",
        "scheduler",
        "worker",
        "connector",
        "client",
    ]


def test_scopes_have_different_names() -> None:
    assert len({s.name for s in PORTFOLIO}) == len(PORTFOLIO)


def test_a_missing_seam_is_named() -> None:
    with pytest.raises(
        MissingSeam, match=r"cannot observe the tracked requests: looked for scheduler\.requests"
    ):
        readers("scheduler", object())


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "names no class"),
        ("no.such.module:Class", "cannot import no.such.module"),
        ("json:NoSuchClass", "json has no class NoSuchClass"),
        ("json:loads", "not a class"),
        ("json:JSONDecoder", "is not a scheduler: it lacks add_request"),
    ],
)
def test_a_bad_target_is_one_line(target: str, message: str) -> None:
    with pytest.raises(Unusable, match=message) as caught:
        load_class(target)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_repair_is_named() -> None:
    with pytest.raises(Unusable, match="vllm is not installed: run scripts/vllm-env"):
        vllm_version()


def test_every_event_can_be_named_by_a_saved_test() -> None:
    assert set(EVENTS) <= set(public.__all__)
