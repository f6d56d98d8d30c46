"""Every subject of the installed release: silent where it is healthy, and where it is not, exactly as known; complete scopes."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from tests.adapters.vllm.test_stock_scheduler import ASYNC, HEALTHY

from vllm_lifecycle.adapters.corpus.complete import Count, count, pinned
from vllm_lifecycle.adapters.corpus.replayed import VERIFIED
from vllm_lifecycle.adapters.vllm.config import STOCK, Unusable, Workshop, vllm_version
from vllm_lifecycle.adapters.vllm.events import Add, Answer, Event, Schedule
from vllm_lifecycle.adapters.vllm.play import play_all
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.scope import Scope

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OMNI = "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler"
TARGETS = (STOCK, ASYNC, *([OMNI] if importlib.util.find_spec("vllm_omni") else []))
VERSION = vllm_version()
SUBJECT = f"omni {VERSION}" if OMNI in TARGETS else VERSION
OURS = VERIFIED if SUBJECT in ("0.13.0", "0.32.0") else ()
"""The verified scheduler, where it runs: nothing at all may fall on it."""

STEP = "a_free_block_is_not_touched_by_a_step"
RECEIVE = "a_free_block_is_not_touched_by_a_transfer"
UNHEALTHY: dict[str, dict[str, str]] = {
    "0.13.0": {
        "a deferred free of a request that a connector could refill": STEP,
        "an abort during a load waits for it": RECEIVE,
        "a grammar fails": "the_engine_never_dies",
    },
    "0.16.0": {
        "a deferred free of a request that a connector could refill": STEP,
        "a grammar fails": "the_engine_never_dies",
    },
}
"""Release -> sequences that are healthy on later ones, and what falls on this one."""
RESET = {"a forced reset": "a_running_request_with_nothing_in_flight_has_a_token_to_compute"}
ASYNC_UNHEALTHY: dict[str, dict[str, str]] = {
    "0.13.0": {**RESET, "a preemption while output is in flight": "only_a_running_request_has_drafts"},
    "0.16.0": RESET,
}
"""AsyncScheduler before 0.32.0: the answer after a reset is thrown away although nothing was in flight."""


@cache
def shop(target: str, scope: Scope) -> Workshop:
    return Workshop(target, scope)


def expected(target: str, name: str) -> list[str]:
    known = dict(UNHEALTHY.get(VERSION, {})) if target not in OURS else {}
    if target == ASYNC:
        known |= ASYNC_UNHEALTHY.get(VERSION, {})
    return [known[name]] if name in known else []


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("target", (*TARGETS, *OURS))
def test_only_what_is_known_falls(target: str, name: str) -> None:
    scope, events = HEALTHY[name]
    assert [f.claim for f in play_all(shop(target, scope), events)] == expected(target, name)


NAMED = {scope.name: scope for scope in PORTFOLIO}
STUCK_FOR_EVER = "something_that_fits_is_eventually_scheduled"
REPAIRED: dict[str, tuple[str, tuple[Event, ...], dict[str, str]]] = {
    "a chunk behind an image is rounded down to nothing": (
        "images and state space",
        (Add("r0", 10, 2, images=2),),
        {"0.16.0": STUCK_FOR_EVER},
    ),
    "an entry allocated again is still to be dropped": (
        "images in rotation",
        (
            Add("r0", 6, 2, 1, images=1, picture=3),
            Add("r1", 6, 2, 2, images=1, picture=1),
            Schedule(),
            Answer(stop="r0"),
            Add("r2", 6, 2, 3, images=1, picture=2),
            Add("r0", 6, 2, 4, images=1, picture=3),
            Schedule(),
        ),
        dict.fromkeys(("0.13.0", "0.16.0"), "a_cached_entry_is_not_to_be_dropped"),
    ),
    "a request that is not admitted holds an encoder entry": (
        "popular images",
        (
            Add("r0", 10, 4, 1, images=2, picture=1),
            Add("r1", 10, 4, 2),
            Add("r2", 10, 4, 3, images=1, picture=1),
        ),
        {"0.13.0": STUCK_FOR_EVER},
    ),
}
"""Sequences in a default scope, and what falls on the releases that have the defect; the others are silent."""


@pytest.mark.parametrize("name", REPAIRED)
def test_a_repaired_defect_falls_only_where_it_is(name: str) -> None:
    scope, events, falls = REPAIRED[name]
    if NAMED[scope].state_space and VERSION == "0.13.0":
        with pytest.raises(Unusable, match="does not cache the state of state-space layers"):
            shop(STOCK, NAMED[scope])
        return
    found = [f.claim for f in play_all(shop(STOCK, NAMED[scope]), events)]
    assert found == ([falls[VERSION]] if VERSION in falls else [])


DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "corpus.md"
PINNED = list(
    {
        (c.name, c.size, c.states, c.transitions): c
        for c in pinned(DOCUMENT.read_text(encoding="utf-8"))
        if c.release == SUBJECT
    }.values()
)
"""Once what is the same scope for a class: an asynchronous one runs two steps ahead in any."""


if PINNED:  # an empty set of parameters would count as skipped

    @pytest.mark.parametrize("known", PINNED, ids=lambda c: f"{c.name} {c.scope}")
    def test_complete_scopes_count_as_the_document_says(known: Count) -> None:
        target = next(t for t in (*TARGETS, *OURS) if t.endswith(f":{known.name}"))
        scopes = Workshop(target, PORTFOLIO[0]).extension.portfolio()
        scope = next(s for s in scopes if s.name == known.scope)
        assert count(target, scope, 500.0) == known


def test_every_default_scope_can_be_built() -> None:
    refused = []
    for target in TARGETS:
        for scope in Workshop(target, PORTFOLIO[0]).extension.portfolio():
            try:
                Workshop(target, scope).scheduler()
            except Unusable as why:
                if not scope.state_space:  # which some releases and classes do not serve
                    refused.append(f"{target} {scope.name}: {why}")
            except Exception as error:
                refused.append(f"{target} {scope.name}: {error}")
    assert refused == []
