"""Exploring the installed vLLM in several processes: the same findings and counts, and honest about a scope that is lost."""

from __future__ import annotations

import importlib
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from vllm_lifecycle.adapters.vllm.config import STOCK
from vllm_lifecycle.adapters.vllm.explore import Exploration, explore
from vllm_lifecycle.adapters.vllm.given import give
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.scope import Scope

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

NAMED = {s.name: s for s in PORTFOLIO}
SCOPES = (
    NAMED["alone"],
    replace(NAMED["loads"], events=2),
    NAMED["one load and one send"],
    replace(NAMED["careless connector"], events=2),
)
"""Scopes that no time cuts off: small ones that are exhausted, wide ones to a small depth."""


def _counted(jobs: int) -> Exploration:
    return explore(STOCK, SCOPES, seconds=400.0, jobs=jobs, walks=12)


def test_findings_and_counts_do_not_depend_on_the_number_of_processes() -> None:
    alone, together = _counted(1), _counted(2)
    assert together.findings == alone.findings
    assert [f.text() for f in together.findings] == [f.text() for f in alone.findings]
    assert len(alone.findings) >= 3
    for one, other in zip(alone.coverage, together.coverage, strict=True):
        assert replace(one, seconds=0.0) == replace(other, seconds=0.0)
        assert one.cut_by in ("", "depth") and one.walks == 12


def _doomed() -> type[Any]:
    base: Any = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler

    class Doomed(base):  # type: ignore[misc]
        """Takes its process down when it has a connector and something to schedule."""

        def schedule(self, *args: Any, **more: Any) -> Any:
            if self.connector is not None and self.requests:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().schedule(*args, **more)

    return Doomed


def test_a_scheduler_that_takes_its_process_down_leaves_its_scope_open() -> None:
    lines: list[str] = []
    small = Scope("small", requests=1, adds=1, blocks=2, prompts=(3,), answers=(1,))
    linked = replace(small, name="linked", connector=True)
    found = explore(give(_doomed()), (small, linked), seconds=60.0, progress=lines.append, jobs=2, walks=3)
    healthy, lost = found.coverage
    assert healthy.complete and not found.findings
    assert not lost.complete and not lost.transitions
    assert "the end of its process (SIGKILL)" in lost.cut_by and "\n" not in str(lost)
    assert any(line.startswith("small") for line in lines)
