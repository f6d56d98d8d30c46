"""The explorer on the verified scheduler inside vllm-omni: bounded scopes to the end, others for a moment, nothing found."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from vllm_lifecycle.adapters.omni.scopes import PORTFOLIO
from vllm_lifecycle.adapters.vllm.config import Workshop
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO as STOCK
from vllm_lifecycle.adapters.vllm.scope import LONG, Scope
from vllm_lifecycle.adapters.vllm.search import Search

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

OURS = "vllm_lifecycle.adapters.omni:VerifiedOmniARScheduler"
OWN = [scope for scope in PORTFOLIO if scope not in STOCK and scope.groups == 1]
BOUNDED = [scope for scope in OWN if scope.events >= LONG]
OTHERS = [
    *(scope for scope in OWN if scope not in BOUNDED),
    *(scope for scope in STOCK if scope.sessions),
]
MOMENT = 1.5  # seconds


def named(scope: Scope) -> str:
    """The scope in the name of a test."""
    return scope.name


@pytest.mark.parametrize("scope", BOUNDED, ids=named)
def test_every_sequence_of_a_bounded_scope_is_in_order(scope: Scope) -> None:
    found = Search(Workshop(OURS, scope), 0).run(400.0, exhaustive_part=1.0)
    assert found.coverage.complete and not found.failures


@pytest.mark.parametrize("level", ["legal", "hostile"])
@pytest.mark.parametrize("scope", OTHERS, ids=named)
def test_nothing_is_found_in_a_moment(scope: Scope, level: str) -> None:
    found = Search(Workshop(OURS, replace(scope, level=level)), 0).run(MOMENT)  # type: ignore[arg-type]
    assert found.coverage.transitions + found.coverage.walk_events > 20 and not found.failures
