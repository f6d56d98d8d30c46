"""Every command in the README and docs runs: here, or in CI by the script that the line itself names.

A fenced `sh` block is a list of commands. A block whose info string says `in=SCRIPT` is carried out elsewhere: the test then
checks that the script exists, that CI reaches it, and that each command of the block stands in what it runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUICK = "vllm-lifecycle "
ESTABLISHED = {0, 3}
"""Exit codes of a command that did its work: all holds, or a bound came first."""


@dataclass(frozen=True)
class Command:
    """One command line of a page; `elsewhere` is the place that carries it out instead of this test."""

    page: str
    text: str
    elsewhere: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def _commands() -> Iterator[Command]:
    for page in PAGES:
        for language, info, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if language != "sh":
                continue
            elsewhere = re.search(r"\bin=(\S+)", info)
            for line in body.splitlines():
                text = line.split("  #")[0].strip()
                if text:
                    yield Command(str(page.relative_to(ROOT)), text, elsewhere[1] if elsewhere else "")


COMMANDS = list(_commands())


def _run_by(script: Path, seen: frozenset[Path] = frozenset()) -> str:
    """The text of a script and of the scripts of this repository that it calls."""
    text = script.read_text(encoding="utf-8")
    for name in re.findall(r"(?:\./)?(scripts/[\w-]+|tests/[\w/]+\.py|\.ci/\w+)", text):
        called = ROOT / name
        if called.is_file() and called not in seen:
            text += _run_by(called, seen | {script, called})
    return text


def test_there_are_commands_and_only_in_sh_blocks() -> None:
    assert len(COMMANDS) > 5
    for page in PAGES:
        for language, _, body in FENCE.findall(page.read_text(encoding="utf-8")):
            assert language == "sh" or QUICK not in body, f"{page.name}: commands belong in a block marked sh"


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.elsewhere], ids=str)
def test_a_command_of_the_docs_works(command: Command) -> None:
    assert command.text.startswith(QUICK), f"{command}: mark its block with in=SCRIPT that carries it out"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in ESTABLISHED, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.elsewhere], ids=str)
def test_a_command_carried_out_elsewhere_is(command: Command) -> None:
    place = ROOT / command.elsewhere
    assert place.is_file(), f"{command}: there is no {command.elsewhere}"
    reached = _run_by(ROOT / ".ci/run")
    by_pytest = command.elsewhere.startswith("tests/") and "-m pytest" in reached
    assert command.elsewhere == ".ci/run" or by_pytest or command.elsewhere in reached, (
        f"CI does not run {place}"
    )
    words = command.text.removeprefix("./")
    assert words in _run_by(place), f"{command.elsewhere} does not run {words!r}"
