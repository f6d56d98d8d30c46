"""The README's command and those of docs/continuous-integration.md, on the real vLLM."""

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
CI = """
vllm-lifecycle check docs.examples.tenant_scheduler:Tenants --seconds 60 --baseline known.json --update-baseline
vllm-lifecycle check docs.examples.tenant_scheduler:Tenants --seconds 60 --baseline known.json --format github --write junit=lifecycle.xml --write sarif=lifecycle.sarif --html lifecycle.html
"""  # noqa: E501
SHORT = ["--scope", "one load and one send", "--scope", "loads", "--seconds", "20"]
REFUTED = 2
ROOT = Path(__file__).resolve().parents[3]
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


def test_the_commands_of_the_ci_page_accept_what_is_known_and_write_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    first, second = (shlex.split(line)[1:] for line in CI.strip().splitlines())
    short = ["--scope", "alone", "--seconds", "3"]
    assert main([*first, *short]) == 0
    capsys.readouterr()
    assert main([*second, *short]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("::notice title=vllm-lifecycle check")
    written = {"known.json", "lifecycle.xml", "lifecycle.sarif", "lifecycle.html"}
    assert {p.name for p in tmp_path.iterdir()} == written
