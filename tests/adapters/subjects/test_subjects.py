"""Every subject of the installed release: silent where it is healthy, and where it is not, exactly as known; complete scopes."""

from __future__ import annotations

import importlib.util
from functools import cache

import pytest

pytest.importorskip("vllm")

from tests.adapters.vllm.test_stock_scheduler import ASYNC, HEALTHY

from vllm_lifecycle.adapters.vllm.config import STOCK, Workshop, vllm_version
from vllm_lifecycle.adapters.vllm.play import play_all
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.scope import Scope
from vllm_lifecycle.adapters.vllm.search import Coverage, Search

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OMNI = "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler"
TARGETS = (STOCK, ASYNC, *([OMNI] if importlib.util.find_spec("vllm_omni") else []))
VERSION = vllm_version()

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
ASYNC_UNHEALTHY = {"a forced reset": "a_running_request_with_nothing_in_flight_has_a_token_to_compute"}
"""AsyncScheduler before 0.32.0: the answer after a reset is thrown away although nothing was in flight."""


@cache
def shop(target: str, scope: Scope) -> Workshop:
    return Workshop(target, scope)


def expected(target: str, name: str) -> list[str]:
    known = dict(UNHEALTHY.get(VERSION, {}))
    if target == ASYNC and known:
        known |= ASYNC_UNHEALTHY
    return [known[name]] if name in known else []


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("target", TARGETS)
def test_only_what_is_known_falls(target: str, name: str) -> None:
    scope, events = HEALTHY[name]
    assert [f.claim for f in play_all(shop(target, scope), events)] == expected(target, name)


COMPLETE = ("alone", "one load", "one load and one send", "two loads")


def _counts(c: Coverage) -> tuple[int, int, int]:
    return c.states, c.transitions, c.depth


@pytest.mark.parametrize("name", COMPLETE)
def test_small_scopes_are_exhausted_and_count_the_same_again(name: str) -> None:
    scope = next(s for s in PORTFOLIO if s.name == name)
    runs = [Search(shop(STOCK, scope), 0).run(120.0, exhaustive_part=1.0).coverage for _ in range(2)]
    assert all(run.complete for run in runs)
    assert _counts(runs[0]) == _counts(runs[1])


def test_every_default_scope_can_be_built() -> None:
    refused = []
    for target in TARGETS:
        for scope in Workshop(target, PORTFOLIO[0]).extension.portfolio():
            try:
                Workshop(target, scope).scheduler()
            except Exception as error:
                refused.append(f"{target} {scope.name}: {error}")
    assert refused == []
