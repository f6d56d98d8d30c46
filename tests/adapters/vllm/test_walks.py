"""Hypothesis walks on the stock scheduler: they find, make small, remember, and stay silent where nothing is wrong."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vllm_lifecycle.adapters.vllm import walks
from vllm_lifecycle.adapters.vllm.config import STOCK, Unusable, Workshop
from vllm_lifecycle.adapters.vllm.events import Event
from vllm_lifecycle.adapters.vllm.explore import conclude, explore
from vllm_lifecycle.adapters.vllm.play import Failure, Game
from vllm_lifecycle.adapters.vllm.scope import Match, Scope
from vllm_lifecycle.adapters.vllm.walks import Walks

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

CARELESS = Scope(
    "careless connector at large",
    requests=3,
    adds=4,
    blocks=12,
    slots=4,
    connector=True,
    matches=(Match(), Match("block", True)),
    level="hostile",
    walk=15,
)
HEALTHY = Scope("queueing at large", requests=4, adds=8, blocks=12, slots=4, resets=True)
SECONDS = 60.0
"""Ten times what the slowest of these takes on a quiet machine: a run that time cuts off would tell nothing."""


def test_a_known_defect_is_found_made_small_and_remembered(tmp_path: Path) -> None:
    shop = Workshop(STOCK, CARELESS)
    harvest = Walks(shop, seed=0, examples=200, folder=tmp_path).run(SECONDS)
    findings = {
        f.key: f for f in (conclude(shop, STOCK, x, time.monotonic() + 5) for x in harvest.failures.values())
    }
    known = [f for f in findings.values() if f.site.endswith(" _update_from_kv_xfer_finished")]
    assert known, findings.keys()
    assert all(f.fault == "connector" and len(f.events) <= 5 for f in known)
    assert harvest.coverage.walks >= 10
    assert not harvest.coverage.complete
    assert harvest.coverage.cut_by == walks.STOPS
    assert any(p.is_file() for p in tmp_path.rglob("*"))

    again = Walks(shop, seed=1, examples=1, folder=tmp_path).run(SECONDS)
    assert again.failures.keys() & harvest.failures.keys()


def test_the_same_seed_finds_the_same(tmp_path: Path) -> None:
    shop = Workshop(STOCK, CARELESS)
    one, two = (Walks(shop, 0, None, 200, tmp_path / name).run(SECONDS) for name in ("one", "two"))
    assert one.failures == two.failures
    assert one.coverage.walk_events == two.coverage.walk_events


def test_a_healthy_scheduler_is_silent_in_a_larger_legal_scope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = explore(STOCK, (HEALTHY,), seconds=SECONDS, examples=30)
    (coverage,) = found.coverage
    assert not found.findings, [f.text() for f in found.findings]
    assert coverage.walks >= 30
    assert coverage.walk_events >= 30 * HEALTHY.walk // 2
    assert coverage.cut_by == "the number of Hypothesis examples, 30"


def test_the_time_bounds_the_walks(tmp_path: Path) -> None:
    shop = Workshop(STOCK, HEALTHY)
    harvest = Walks(shop, 0, None, 1_000_000, tmp_path).run(0.5)
    assert harvest.coverage.cut_by == "time"
    assert harvest.coverage.seconds < 5


def test_ctrl_c_keeps_what_was_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent: list[str] = []

    def press(line: str) -> None:
        if "examples" in line and not sent:  # the walks have begun
            sent.append(line)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    found = explore(STOCK, (HEALTHY,), seconds=SECONDS, examples=1_000_000, progress=press)
    assert sent
    assert found.coverage[0].cut_by == "interrupted"


def test_a_ctrl_c_that_something_swallows_still_ends_the_walks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    played = Game.play

    def swallows(self: Game, event: Event) -> list[Failure]:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return played(self, event)

    monkeypatch.setattr(Game, "play", swallows)
    found = explore(STOCK, (HEALTHY,), seconds=SECONDS, examples=1_000_000)
    assert found.coverage[0].cut_by == "interrupted"
    assert found.coverage[0].walk_events == 1


def test_without_hypothesis_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "find_spec", lambda name: None)
    with pytest.raises(Unusable, match=r"^hypothesis is not installed: install vllm-lifecycle\[test\]$"):
        explore(STOCK, (HEALTHY,), examples=1)
