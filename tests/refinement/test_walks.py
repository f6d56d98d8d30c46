"""Beyond exhaustive scopes: long random walks of kernel and specification, and whole passes under a random policy."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refinement.conftest import compiled
from tests.refinement.lockstep import FEATURES, Lockstep
from tests.refinement.moves import Driver
from tests.refinement.passes import Engine

from vllm_lifecycle.statemachine.kernel.refusal import Refused

WALK = 150
SEEDS = st.integers(0, 2**32 - 1)
made: Counter[str] = Counter()


def walk(rng: random.Random, driver: Driver, length: int) -> None:
    """Random moves, any that the driver knows; a move that leads to a mismatch raises it."""
    for _ in range(length):
        moves = list(driver.moves())
        name, move = moves[rng.randrange(len(moves))]
        if not isinstance(move(), Refused):
            made[name.split()[0]] += 1


@pytest.mark.parametrize("size", [(2, 3, 2), (3, 4, 3)], ids="{0[0]}x{0[1]}x{0[2]}".format)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_a_walk_stays_inside_the_specification(size: tuple[int, int, int], seed: int) -> None:
    walk(random.Random(seed), Driver(Lockstep(compiled(*size, FEATURES))), WALK)


def test_walks_make_every_kind_of_move() -> None:
    for seed in range(30):
        walk(random.Random(seed), Driver(Lockstep(compiled(2, 3, 2, FEATURES))), WALK)
    expected = {
        "add", "abort", "begin", "output", "reset", "forced", "admit", "load", "promote", "grammar", "continue", "preempt",
        "dispatch", "received", "sent", "failed", "row", "stop", "end",
    }  # fmt: skip
    assert expected <= set(made)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_passes_under_any_policy_stay_inside_the_specification(seed: int) -> None:
    Engine(compiled(3, 5, 2, FEATURES, order=False), random.Random(seed)).run(60)
