"""Cases in which the verified scheduler once differed, or the original does: they agree, and reach what they are about."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module

import pytest

pytest.importorskip("vllm")

from tests.differential.run import Classes, play
from tests.differential.settings import Abort, Add, Answer, Broken, Case, Received, Reset, Setup, Step

pytestmark = pytest.mark.vllm
LATER = hasattr(import_module("vllm.v1.core.sched.interface"), "PauseState")
OURS = "vllm_lifecycle.adapters.vllm.verified:VerifiedScheduler"
OURS_ASYNC = "vllm_lifecycle.adapters.vllm.verified:VerifiedAsyncScheduler"


def busy(*numbers: int) -> tuple[Add, ...]:
    """Requests that take the slots for two steps."""
    return tuple(Add(f"r{number}", own=1, answer=2) for number in numbers)


SHARER = Case(
    Setup(asynchronous=True, connector=True, load_failures="fail"),
    (
        *busy(24, 36, 37, 39, 40, 41),
        Add("r42", own=1, undecided=1),
        Step(),
        Add("r43", own=1),
        Add("r44", own=1, shared=4, match=1),
        Answer(),
        Step(),
        Step(),
        Answer(),
        Add("r45", own=1, shared=5, match=5, between=True, undecided=1),
        Step(),
        Broken("r44"),
        Answer(),
        Step(),
        Answer(),
    ),
)
"""A load that began after the step of the failed one shares its block: it fails as well, although its own load does not."""

AGAIN = Case(
    Setup(caching=False, asynchronous=True, encoder="encoder-decoder"),
    (
        Step(),
        Add("r39", own=5, images=1),
        Step(),
        Answer(),
        Reset(running=True),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A forced reset while a step reads encoder entries: they are given back with its answer, and only then is there room again."""

RETRIED = Case(
    Setup(blocks=14, connector=True),
    (
        Add("r0", own=40, match=32, between=True, answer=2),
        Step(),
        Answer(),
        Broken("r0"),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A load of which nothing came is begun again: the request fits, but not beside itself."""

ABORTED = Case(
    Setup(connector=True),
    (
        Add("r0", own=9, match=6, between=True, hold=True),
        Step(),
        Answer(),
        Abort(("r0",)),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A client leaves during the load of a request whose blocks are to be sent as well."""

FOUND = {
    "sharer": (SHARER, "load in the step failed"),
    "again": (AGAIN, "reset of what runs"),
    "retried": (RETRIED, "load between steps failed"),
    "aborted": (ABORTED, "aborted during a load"),
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
