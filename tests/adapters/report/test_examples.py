"""The example workflow and the hook ask for what the command line has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from vllm_lifecycle.adapters.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = ROOT / "docs" / "examples" / "lifecycle-workflow.yml"
GITLAB = ROOT / "docs" / "examples" / "lifecycle-gitlab.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
PAGE = ROOT / "docs" / "continuous-integration.md"


def _yaml(text: str) -> Any:
    return pytest.importorskip("yaml", reason="pyyaml: install the extra `dev`").safe_load(text)


@pytest.fixture
def options(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The options of `check`."""
    assert main(["check", "--help"]) == 0
    return set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))


def test_the_workflow_runs_what_the_command_line_has(options: set[str]) -> None:
    steps = _yaml(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["check"]["steps"]
    [run] = [s["run"] for s in steps if s.get("run", "").startswith("vllm-lifecycle ")]
    used = set(re.findall(r"--[a-z][a-z-]*", run))
    assert {"--format", "--write", "--html", "--save", "--baseline"} <= used <= options
    for written in re.findall(r"(?:=|--html )(lifecycle\.\w+)", run):
        assert any(written in str(step) for step in steps if "uses" in step), f"nobody takes {written}"


def test_the_hook_runs_what_the_command_line_has(options: set[str]) -> None:
    [hook] = _yaml(HOOKS.read_text(encoding="utf-8"))
    assert hook["entry"] == "vllm-lifecycle check"
    assert {"id", "name", "language", "pass_filenames"} <= set(hook)
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [local] = (_yaml(block) for block in blocks)
    [used] = local["repos"][0]["hooks"]
    assert used["id"] == hook["id"]
    assert {a.partition("=")[0] for a in used["args"][1:]} <= options


def test_the_gitlab_job_runs_what_the_command_line_has(options: set[str]) -> None:
    job = _yaml(GITLAB.read_text(encoding="utf-8"))["lifecycle"]
    run = job["script"][-1]
    used = set(re.findall(r"--[a-z][a-z-]*", run))
    assert {"--write", "--html", "--baseline"} <= used <= options
    assert f"junit={job['artifacts']['reports']['junit']}" in run
    assert f"--html {job['artifacts']['paths'][0]}" in run
