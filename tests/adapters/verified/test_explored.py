"""The explorer on the verified scheduler: small scopes to their end, a few walks of each wide one, and what it once found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_lifecycle.adapters.corpus.replayed import VERIFIED, play
from vllm_lifecycle.adapters.vllm.config import Unusable, Workshop
from vllm_lifecycle.adapters.vllm.events import Abort, Add, Answer, Event, Report, Schedule
from vllm_lifecycle.adapters.vllm.explore import explore
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.saved import Saved
from vllm_lifecycle.adapters.vllm.scope import LONG, Match, Scope
from vllm_lifecycle.adapters.vllm.target import build

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

NAMED = {scope.name: scope for scope in PORTFOLIO}
COMPLETE = tuple(scope for scope in PORTFOLIO if scope.events >= LONG)
WIDE = tuple(replace(scope, events=2) for scope in PORTFOLIO if scope.events < LONG)
BLOCK = Match("block", True)
S, A = Schedule(), Answer()
STILL_READ = (
    Add("r0", 10, 4, priority=1, images=2, picture=1),
    S,
    A,
    S,
    Abort("r0"),
    Add("r0", 10, 4, priority=1, images=1, picture=1),
    S,
    A,
    S,
)
FOUND: dict[str, tuple[str, tuple[Event, ...]]] = {
    "an id is given again while a step reads images of its former owner": ("popular images", STILL_READ),
    "a send is reported before it began, and begins by an abort": (
        "careless connector",
        (Add("r0", 6, 2, hold=True), S, Report("sent", "r0"), Abort("r0"), A),
    ),
    "both transfers of an aborted load, one reported too early": (
        "careless connector",
        (Add("r0", 6, 2, match=BLOCK, hold=True), S, Report("sent", "r0"), Abort("r0"), A, S),
    ),
    "a load is reported while an earlier step is answered": (
        "careless connector",
        (Add("r0", 6, 2), S, Add("r1", 6, 2, match=BLOCK), S, Report("received", "r1"), Abort("r1"), A, A),
    ),
    "an answer without a token, and a step behind it": (
        "careless worker",
        (Add("r0", 6, 3), S, A, S, S, Answer(empty="r0"), A),
    ),
    "a pooling request's vector is missing": (
        "pooling and adapters",
        (Add("r0", 6, 2, pooling=True, adapter=1), S, Answer(empty="r0"), S, A),
    ),
    "a decoder leaves the lockstep with its last token in flight": (
        "careless connector",
        (Add("r0", 6, 2), S, A, S, S),
    ),
    "the last one gives way to one whose last token is in flight": (
        "images under pressure",
        (Add("r1", 6, 4, 1), Add("r2", 6, 4, 2), S, S, A, S, A, S, A, S),
    ),
}


@pytest.mark.parametrize("target", VERIFIED)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_falls_no_more(name: str, target: str) -> None:
    scope, events = FOUND[name]
    assert play(target, Saved("", target, NAMED[scope], events)).end == "clean"


@pytest.mark.parametrize("target", VERIFIED)
def test_nothing_falls_in_small_scopes_nor_in_some_walks_of_wide_ones(target: str) -> None:
    scopes = [scope for scope in (*COMPLETE[:2], *WIDE) if _serves(target, scope)]
    found = explore(target, scopes, seed=1, seconds=600.0, walks=8)
    assert not found.findings, [finding.text() for finding in found.findings]
    assert all(c.walks == 8 for c in found.coverage)
    assert len(scopes) >= 25


def _serves(target: str, scope: Scope) -> bool:
    try:
        build(Workshop(target, scope))
    except Unusable:
        return False
    return True


def test_an_asynchronous_class_of_our_own_runs_a_step_ahead() -> None:
    scopes = [Workshop(target, NAMED["alone"]).scope for target in VERIFIED]
    assert [(s.asynchronous, s.depth) for s in scopes] == [(False, 1), (True, 2)]
