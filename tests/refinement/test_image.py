"""Images of pairs: all that a kernel's operations look at is in them, and names are not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.refinement.conftest import compiled
from tests.refinement.image import canonical, image, restore
from tests.refinement.lockstep import FEATURES
from tests.refinement.moves import Driver
from tests.refinement.search import digest, pair

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.pool import Pool
from vllm_lifecycle.statemachine.kernel.prefix import Prefixes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step
from vllm_lifecycle.statemachine.kernel.transfers import Transfer

ALL = (*FEATURES, "handoff")

SHOWN = {
    Seq: "id status prompt tokens computed table cached_blocks in_flight last_step run deliver_from announced held_kv triggered "
    "anew receive send handoff",
    Transfer: "kind state hold valid tokens",
    Hold: "blocks counted live",
    Step: "number rows",
    Row: "seq run tokens drafts awaited",
    Pool: "queue refs",
    Prefixes: "keys first copies",
    "kernel": "seqs running waiting loads idle notices unfinished steps store _filling _grown",
    "store": "pool prefixes _held _uncounted",
    "steps": "number outstanding waiting",
}
"""What an image has of each class."""

LEFT_OUT = {
    Seq: "epoch payload outputs hashes limit lora skip_cache drafts placeholders priority arrival "  # the same for all here
    "cached_tokens external preemptions reason chunk lockstep",  # only written by the kernel
    Transfer: "since first",
    Hold: "",
    Step: "lockstep left",
    Row: "",
    Pool: "size _entries _void _voids",
    Prefixes: "",
    "kernel": "slots holding refused columns _finishing _clock",
    "store": "block_size longest rules caching eagle listener watch _listed",
    "steps": "_let_go",
}
"""What it leaves out, because it is the same for all pairs here, follows from the rest, or is only written."""


def fields(what: Any) -> set[str]:
    """The names of everything that it stores."""
    if isinstance(what, str):
        kernel = pair(compiled(1, 1, 1, ("core", "handoff"))).kernel
        return set(vars({"kernel": kernel, "store": kernel.store, "steps": kernel.steps}[what]))
    names = set(getattr(what, "_fields", getattr(what, "__slots__", ())))
    return names | {n for n in dir(what) if isinstance(getattr(what, n), property) and getattr(what, n).fset}


@pytest.mark.parametrize("what", SHOWN, ids=lambda what: what if isinstance(what, str) else what.__name__)
def test_every_field_is_in_the_image_or_left_out_with_intent(what: Any) -> None:
    assert fields(what) == set(SHOWN[what].split()) | set(LEFT_OUT[what].split())


def walk(driver: Driver, seed: int, length: int) -> None:
    """Random moves."""
    rng = random.Random(seed)
    for _ in range(length):
        moves = list(driver.moves())
        moves[rng.randrange(len(moves))][1]()


@pytest.mark.parametrize("seed", range(20))
def test_a_pair_comes_back_as_it_was(seed: int) -> None:
    spec = compiled(2, 3, 2, ALL)
    driver = Driver(pair(spec))
    walk(driver, seed, 80)
    twin = driver.twin
    known, general = image(twin), canonical(twin)
    twin.known = None
    restore(twin, known)
    assert image(twin) == known
    restore(twin, general)
    assert canonical(twin) == general
    assert digest(canonical(twin)) == digest(general)


def swapped(name: str) -> str:
    """A move's name when the two requests change names."""
    return name.replace("r0", "r?").replace("r1", "r0").replace("r?", "r1")


@pytest.mark.parametrize("seed", range(20))
def test_names_do_not_matter(seed: int) -> None:
    spec = compiled(2, 3, 1, ALL)
    plain, other = Driver(pair(spec)), Driver(pair(spec))
    other.twin.store.pool.queue = [2, 3, 1]
    rng = random.Random(seed)
    for _ in range(80):
        name, move = rng.choice(sorted(plain.moves(), key=lambda m: m[0]))
        move()
        dict(other.moves())[swapped(name)]()
        assert canonical(plain.twin) == canonical(other.twin), name
