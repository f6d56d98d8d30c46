"""The README's command on the real vLLM: a page on which one sees who held which block when it was freed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from vllm_lifecycle.adapters.cli.main import main

README = """
scripts/vllm-env 0.32.0
.venvs/vllm-0.32.0/bin/vllm-lifecycle check vllm --html report.html
"""
SHORT = ["--scope", "one load and one send", "--scope", "loads", "--seconds", "20"]
REFUTED = 2
CLAIM = "a_free_block_is_not_touched_by_a_transfer"

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="the real vLLM: run scripts/vllm-env 0.32.0 and this in its environment")


def _cases(text: str) -> dict[str, list[Any]]:
    """The data of the pictures on a page, by claim."""
    out: dict[str, list[Any]] = {}
    for article in re.findall(r'<article class="case".*?</article>', text, re.DOTALL):
        claim = re.sub(r"<[^>]*>", "", re.search(r"<h3[^>]*>(.*?)</h3>", article, re.DOTALL)[1])  # type: ignore[index]
        data = re.search(r'<script type="application/json">(.*?)</script>', article, re.DOTALL)
        assert data is not None
        out.setdefault(claim, []).append(json.loads(data[1]))
    return out


def test_a_newcomer_sees_who_held_the_block_when_it_was_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = README.strip().splitlines()[-1]
    assert main([*shlex.split(command)[1:], *SHORT]) == REFUTED
    assert capsys.readouterr().err.splitlines()[-1] == "written: report.html"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    last = [case["moments"][-1] for case in _cases(text)[CLAIM]]
    owners = [{o["kind"] for o in b["owners"]} for m in last for b in m["blocks"] if b["subject"]]
    assert any("free" in kinds and kinds & {"receive", "send"} for kinds in owners), owners
    assert "def test_" in text
    assert "vllm/v1/core/sched/scheduler.py:" in text.replace("<wbr>", "")
