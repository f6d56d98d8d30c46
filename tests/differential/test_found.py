"""Cases in which the verified scheduler once differed, or the original does: they agree, and reach what they are about."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module

import pytest

pytest.importorskip("vllm")

from tests.differential.cases import ABORTED, AGAIN, LAST, RETRIED, SHARER
from tests.differential.run import Classes, play

pytestmark = pytest.mark.vllm
LATER = hasattr(import_module("vllm.v1.core.sched.interface"), "PauseState")
OURS = "vllm_lifecycle.adapters.vllm.verified:VerifiedScheduler"
OURS_ASYNC = "vllm_lifecycle.adapters.vllm.verified:VerifiedAsyncScheduler"


FOUND = {
    "sharer": (SHARER, "load in the step failed"),
    "again": (AGAIN, "reset of what runs"),
    "retried": (RETRIED, "load between steps failed"),
    "aborted": (ABORTED, "aborted during a load"),
    "last": (LAST, "load between steps failed"),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The original logs each failed load."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", FOUND)
def test_both_agree_and_the_case_reaches_what_it_is_about(name: str) -> None:
    case, reached = FOUND[name]
    pair = play(Classes.named(OURS, OURS_ASYNC, plain=False), case.setup, case.events)
    assert pair.divergence is None, str(pair.divergence)
    assert not pair.ended
    assert pair.met[reached]


def test_the_original_begins_such_a_load_again_only_where_it_reserves_nothing_for_loads() -> None:
    pair = play(Classes.named(OURS, OURS_ASYNC, plain=True), RETRIED.setup, RETRIED.events)
    assert (pair.divergence is not None) == LATER, str(pair.divergence)
    if LATER:
        theirs, own = (side.scheduler.requests["r0"].status.name for side in pair.sides)
        assert (theirs, own) == ("WAITING", "WAITING_FOR_REMOTE_KVS")
