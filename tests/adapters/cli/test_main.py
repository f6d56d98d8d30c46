"""The command as a user meets it: exit codes, one-line errors, broken pipes, `explain`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_lifecycle.adapters.cli import services
from vllm_lifecycle.adapters.cli.main import main

CTRL_C = 3


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a wrong command line is answered with."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (1, ""), (code, out, err)
    [line] = err.splitlines()
    assert line.startswith("vllm-lifecycle: ")
    assert "Traceback" not in line
    return line.removeprefix("vllm-lifecycle: ")


@pytest.mark.parametrize(
    ("arguments", "repair"),
    [
        (("frobnicate",), "No such command"),
        (("prove", "--frobnicate"), "No such option"),
        (("prove", "--seeds", "many"), "'--seeds'"),
        (("prove", "--seeds", "0"), "above 0"),
        (("prove", "--timeout", "-1"), "above 0"),
        (("prove", "a_free_block_has_no_holdr"), "did you mean a_free_block_"),
        (("explore", "--scope", "0x3"), "0x3"),
        (("explore", "--scope", "9x9x9"), "9x9x9"),
        (("explore", "--scope", "nonsense"), "nonsense"),
        (("explore", "--scope", "2x2", "--features", "nonsense"), "choose from"),
        (("explore", "--scope", "2x2", "--modules", "nonsense"), "choose from"),
        (("explore", "--max-states", "0"), "above 0"),
        (("explore", "--max-memory", "lots"), "500MB"),
        (("explore", "--format", "yaml"), "'--format'"),
        (("mutants", "abort_frees_nothing_at_al"), "mutant"),
        (("explain", "RUNING"), "did you mean RUNNING"),
        (("explain", "qqqqqq"), "vllm-lifecycle explain"),
        (("check", "--contract", "hostile"), "name one"),
        (("check", "--seconds", "5"), "name one"),
        (("check", "vllm", "--contract", "friendly"), "legal"),
        (("check", "vllm", "--seconds", "0"), "above 0"),
        (("check", "vllm", "--jobs", "0"), "above 0"),
        (("check", "--jobs", "2"), "name one"),
        (("check", "notdotted"), "pkg.mod:Class"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_is_one_line_with_the_repair(
    arguments: tuple[str, ...], repair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert repair in complaint(capsys, *arguments)


def test_an_internal_error_is_one_line_and_debug_shows_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(services, "versions", broken)
    assert (
        complaint(capsys, "version")
        == "internal error: RuntimeError: two lines (add --debug for the traceback)"
    )
    with pytest.raises(RuntimeError):
        main(["version", "--debug"])


def test_ctrl_c_before_anything_was_checked_is_not_established(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "versions", interrupted)
    assert main(["version"]) == CTRL_C
    assert capsys.readouterr().err.count("\n") == 1


def test_no_arguments_and_help_both_teach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert "check my.pkg:MyScheduler" in bare
    for command in ("check", "prove", "explore", "mutants", "explain"):
        assert main([command, "--help"]) == 0
        assert "Examples" in capsys.readouterr().out


def test_the_names_in_help_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("prove", "mutants", "explain"):
        assert main([command, "--help"]) == 0
        names = re.findall(
            rf"^ *vllm-lifecycle {command} ([A-Za-z]\w+)", capsys.readouterr().out, re.MULTILINE
        )
        assert names
        for name in names:
            assert main(["explain", name]) == 0
    capsys.readouterr()


def test_versions_name_this_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--format", "json"]) == 0
    assert "vllm-lifecycle" in json.loads(capsys.readouterr().out)


def test_a_reader_that_went_away_is_no_error(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m vllm_lifecycle.adapters.cli.main explain; echo code $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | true"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == "code 0\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("RUNNING", "in lifecycle request: entered from:"),
        ("preempt_request", "taken by:\n  scheduler"),
        ("status", "module:\n  queue"),
        ("a_finished_request_is_eventually_freed", "fair actions:"),
        ("P1", "catalogue:"),
    ],
)
def test_explain_tells_every_kind_of_name(name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    assert told in capsys.readouterr().out
    assert main(["explain", name, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"]


def test_explain_knows_every_name_that_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--format", "json"]) == 0
    listed = [
        name
        for entry in json.loads(capsys.readouterr().out)["entries"]
        for heading, names in entry.items()
        if heading not in ("kind", "name", "doc")
        for name in names
    ]
    assert len(listed) > 150
    for name in listed:
        assert main(["explain", name]) == 0, name
    assert not capsys.readouterr().err
