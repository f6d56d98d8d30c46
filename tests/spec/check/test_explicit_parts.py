"""Parts of the packed search by themselves: planes, the visited set, states of several words, and formulas."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vllm_lifecycle.spec.check.explicit.formula import FALSE, TRUE, Formulas
from vllm_lifecycle.spec.check.explicit.planes import groups_for, members, transpose, valid
from vllm_lifecycle.spec.check.explicit.search import explore
from vllm_lifecycle.spec.check.explicit.symmetry import _plain_changes
from vllm_lifecycle.spec.check.explicit.table import Recent, Table
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.build import Individual, State
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec

Make = Callable[..., Any]
STAGES = 6


class Request(Individual):
    """Individuals of the wide example."""


class Block(Individual):
    """Individuals of the wide example."""


def wide() -> Any:
    """One mark in one of many relations: many bits, few states."""
    spec = Spec("wide")
    spec.var("placed", module="m")
    for i in range(STAGES):
        spec.var(f"stage{i}", Request, Block, module="m")

    @spec.action(by="chance")
    def place(s: State, r: Request, b: Block) -> None:
        s.require(~s.placed)
        s.placed = True
        s.stage0[r, b] = True

    def advance(i: int) -> Callable[..., None]:
        def step(s: State, r: Request, b: Block, c: Block) -> None:
            here, there = getattr(s, f"stage{i}"), getattr(s, f"stage{(i + 1) % STAGES}")
            s.require(here[r, b])
            here[r, :] = False
            there[r, :] = lambda x: x == c

        step.__name__ = f"advance{i}"
        return step

    for i in range(STAGES):
        spec.action(by="chance")(advance(i))

    @spec.safety()
    def a_mark_in_the_last_stage_is_not_in_the_first(s: State, r: Request, b: Block) -> Implication:
        return when(s.stage5[r, b]).then(~s.stage0[r, b])

    return spec.seal()


def test_states_of_two_words_agree_with_the_plain_search(search_naively: Make) -> None:
    machine, domain = wide(), ev.Domain({"Request": (0, 1, 2), "Block": (0, 1, 2, 3)})
    naive = search_naively(machine, domain)
    found = explore(machine, domain)
    assert found.model.layout.words == 2
    assert (found.states, found.transitions, found.depth) == (
        len(naive.states),
        len(naive.edges),
        naive.depth,
    )
    reduced = explore(machine, domain, symmetry=("Request", "Block"))
    assert reduced.unreduced == found.states
    assert reduced.states == 1 + STAGES
    layout = found.model.layout
    assert all(layout.decode(layout.encode(state)) == state for state in naive.states)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 1000])
def test_members_of_a_plane_are_its_states(count: int) -> None:
    words = np.array([random.Random(i).getrandbits(64) for i in range(count)], np.uint64)
    block = np.zeros((64, groups_for(count)), np.uint64)
    block.reshape(-1)[:count] = words
    transpose(block)
    row, state = members(block & valid(count), count)
    expected = {(j, s) for s in range(count) for j in range(64) if int(words[s]) >> j & 1}
    assert set(zip(row.tolist(), state.tolist(), strict=True)) == expected
    assert len(row) == len(expected)
    transpose(block)
    assert (block.reshape(-1)[:count] == words).all()


@pytest.mark.parametrize("words", [1, 2])
def test_the_visited_set_answers_each_new_state_once(words: int) -> None:
    chance = np.random.default_rng(1)
    table = Table(words, bits=3)
    known: set[tuple[int, ...]] = set()
    for _ in range(40):
        keys = [chance.integers(0, 40, 300).astype(np.uint64) for _ in range(words)]
        fresh = table.add(keys)
        rows = list(zip(*(k.tolist() for k in keys), strict=True))
        new = [rows[i] for i in fresh.tolist()]
        assert len(new) == len(set(new))
        assert set(new) == set(rows) - known
        known |= set(rows)
    assert table.count == len(known)
    order = sorted(known)
    columns = [np.array([row[i] for row in order], np.uint64) for i in range(words)]
    table.number(columns)
    assert (table.numbers(columns) == np.arange(len(order))).all()


def test_recent_keys_are_never_taken_for_seen_when_they_are_not() -> None:
    chance = np.random.default_rng(2)
    recent = Recent(1, bits=4)
    known: set[int] = set()
    for _ in range(50):
        keys = chance.integers(0, 200, 60).astype(np.uint64)
        passed = set(keys.take(recent.unseen([keys])).tolist())
        assert set(keys.tolist()) - known <= passed
        known |= passed


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_exchanges_walk_through_all_permutations(size: int) -> None:
    here = list(range(size))
    seen = {tuple(here)}
    for i in _plain_changes(size):
        here[i], here[i + 1] = here[i + 1], here[i]
        seen.add(tuple(here))
    assert len(seen) == len(_plain_changes(size)) + 1
    assert len(seen) == [1, 1, 2, 6, 24, 120][size]


def test_formulas_mean_what_they_say_when_simplified() -> None:
    chance = random.Random(3)
    sizes = [2, 2, 3, 3]
    formulas = Formulas([(1 << n) - 1 for n in sizes])

    def build(depth: int) -> int:
        if not depth:
            cell = chance.randrange(4)
            return formulas.literal(cell, chance.randrange(1 << sizes[cell]))
        kind = chance.choice((formulas.conj, formulas.disj))
        node = kind([build(depth - 1) for _ in range(chance.randint(1, 3))])
        return formulas.neg(node) if chance.random() < 0.3 else node

    def true(node: int, state: tuple[int, ...]) -> bool:
        if node in (FALSE, TRUE):
            return node == TRUE
        parts = [bool(m >> state[c] & 1) for c, m in formulas.literals[node]]
        parts += [true(p, state) for p in formulas.parts[node]]
        return all(parts) if formulas.kind[node] else any(parts)

    states = list(np.ndindex(*sizes))
    for _ in range(300):
        one, two = build(2), build(3)
        for state in states:
            assert true(formulas.neg(two), state) is not true(two, state)
            assert true(formulas.tidy(two), state) is true(two, state)
            assert true(formulas.choose(one, two, formulas.neg(two)), state) is (
                true(one, state) is true(two, state)
            )
        known = {0: 1 << chance.randrange(2), 2: chance.randrange(1, 8)}
        simpler = formulas.assume(two, known)
        for state in states:
            if all(mask >> state[cell] & 1 for cell, mask in known.items()):
                assert true(simpler, state) is true(two, state)
