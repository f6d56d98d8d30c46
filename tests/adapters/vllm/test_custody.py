"""Frames of a custody picture say what the calls changed, on the real scheduler."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="the real vLLM: run scripts/vllm-env 0.32.0 and this in its environment")

from vllm_lifecycle.adapters.report.custody import Frame, Picture  # noqa: E402
from vllm_lifecycle.adapters.vllm import Abort, Add, Answer, Match, Schedule, Scope  # noqa: E402
from vllm_lifecycle.adapters.vllm.config import STOCK  # noqa: E402
from vllm_lifecycle.adapters.vllm.rerun import rerun  # noqa: E402
from vllm_lifecycle.adapters.vllm.saved import Saved  # noqa: E402

CLAIM = "a_free_block_is_in_no_table"
LOADS = Scope("loads", blocks=6, matches=(Match("block", True),), connector=True)


def _frames(picture: Picture) -> list[Frame]:
    frames = [m.frame for m in picture.moments]
    assert all(frames)
    return [f for f in frames if f is not None]


def _held(frame: Frame) -> set[tuple[str, frozenset[str]]]:
    return {(h.label, h.blocks) for h in frame.holdings}


def test_a_load_holds_its_blocks_beside_the_table() -> None:
    events = (Add("r0", 6, 2, match=Match("block", True)), Schedule(), Abort("r0"))
    added, loading, _ = _frames(rerun(Saved(CLAIM, STOCK, LOADS, events)).picture)
    assert added.blocks == ("1", "2", "3", "4", "5", "6") == tuple(sorted(added.free or ()))
    assert [(r.name, r.status) for r in added.requests] == [("r0", "WAITING")]
    assert [(r.name, r.status) for r in loading.requests] == [("r0", "WAITING_FOR_REMOTE_KVS")]
    [block] = set(loading.blocks) - set(loading.free or ())
    assert _held(loading) == {("table r0", frozenset({block})), ("receive r0", frozenset({block}))}


def test_a_step_in_flight_holds_what_it_reads_or_writes() -> None:
    events = (Add("r0", 6, 2), Schedule(), Answer())
    scope = Scope("plain", blocks=6)
    _, running, answered = _frames(rerun(Saved(CLAIM, STOCK, scope, events)).picture)
    assert [s.state for s in running.steps] == ["6 tokens"]
    blocks = {h.kind: h.blocks for h in running.holdings}
    assert blocks["step"] == blocks["table"]
    assert {h.kind for h in answered.holdings} == {"table"}
    assert not answered.steps


def test_a_property_that_holds_is_not_marked() -> None:
    again = rerun(Saved(CLAIM, STOCK, Scope("plain", blocks=6), (Add("r0", 6, 2), Schedule())))
    assert again.holds
    assert not again.picture.falls
