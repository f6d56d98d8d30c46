"""`check TARGET`: the stock scheduler is driven and judged, a class of the user's too, and bad targets are one line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from vllm_lifecycle.adapters.cli.main import main

STOCK = "vllm-lifecycle check vllm"
MINE = "vllm-lifecycle check my.pkg:MyScheduler --contract hostile"
SHORT = ["--seconds", "10", "--format", "json"]
REFUTED = 2

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="the real vLLM: run scripts/vllm-env 0.32.0 and this in its environment")


def _arguments(command: str) -> list[str]:
    return [*shlex.split(command)[1:], *SHORT]


def test_the_stock_scheduler_is_driven_and_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(_arguments(STOCK))
    data = json.loads(capsys.readouterr().out)
    [section] = data["sections"]
    assert (code, data["outcome"]) == (REFUTED, "refuted")
    found = [v for v in section["verdicts"] if v["outcome"] == "refuted"]
    assert found
    assert all(v["trace"] and v["reason"] for v in found)


def test_a_class_of_the_users_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "my"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pkg.py").write_text(
        "from vllm.v1.core.sched.scheduler import Scheduler\n\nclass MyScheduler(Scheduler):\n"
        "    def schedule(self, *args, **kwargs):\n        print('noise')\n        return super().schedule(*args, **kwargs)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    main(_arguments(MINE))
    assert json.loads(capsys.readouterr().out)["sections"][0]["verdicts"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("no_such_package.mod:Class", "no_such_package"),
        ("json:NoSuchClass", "NoSuchClass"),
        ("json:dumps", "not a class"),
        ("json:JSONDecoder", "not a scheduler"),
    ],
)
def test_a_bad_target_is_one_line(target: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", target]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
