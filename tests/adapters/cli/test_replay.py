"""`replay` without vLLM: bad files and bad releases are one line, another release is asked in its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.vllm.test_saving import finding

from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.vllm import saved


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a wrong command line is answered with."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (1, ""), (code, out, err)
    [line] = err.splitlines()
    return str(line)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A saved finding."""
    place = tmp_path / "finding.json"
    place.write_text(saved.dump(finding()), encoding="utf-8")
    return str(place)


def test_a_file_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "check TARGET --save DIR" in complaint(capsys, "replay", str(tmp_path / "nothing.json"))
    assert "Is a directory" in complaint(capsys, "replay", str(tmp_path))
    (tmp_path / "broken.json").write_text("{")
    assert "not a saved finding: no JSON" in complaint(capsys, "replay", str(tmp_path / "broken.json"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert "no text" in complaint(capsys, "replay", str(tmp_path / "binary.json"))


@pytest.mark.parametrize("release", ["0.13.0", "vllm", "vllm==", "torch==2.0", "vllm==../x"])
def test_a_release_that_is_none_is_one_line(
    release: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "write vllm==0.32.0 or vllm-omni==0.16.0" in complaint(capsys, "replay", file, "--on", release)


@pytest.mark.parametrize(
    ("release", "folder", "subject"),
    [("vllm==9.9.9", "vllm-9.9.9", "9.9.9"), ("vllm-omni==9.9", "vllm-omni-9.9", "omni-9.9")],
)
def test_a_missing_environment_says_how_to_make_it(
    release: str,
    folder: str,
    subject: str,
    file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_LIFECYCLE_ENVS", str(tmp_path))
    told = complaint(capsys, "replay", file, "--on", release)
    assert told.endswith(f"(looked for {tmp_path / folder}): make it with scripts/vllm-env {subject}")


def test_another_environment_runs_the_same_command_and_its_exit_code_counts(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "vllm-9.9.9" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\nexit 2\n')
    python.chmod(0o755)
    monkeypatch.setenv("VLLM_LIFECYCLE_ENVS", str(tmp_path))
    assert main(["replay", file, "--on", "vllm==9.9.9", "--format", "json"]) == 2
    called = (tmp_path / "called").read_text().split()
    assert called == ["-m", "vllm_lifecycle.adapters.cli.main", "replay", file, "--format", "json"]
