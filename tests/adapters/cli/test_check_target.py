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


SCHEDULER = "from vllm.v1.core.sched.scheduler import Scheduler\n\nclass Mine(Scheduler):\n"
BAD = {
    "leaves": ("import sys\nsys.exit(7)\n", "importing leaves:Mine ends the program: SystemExit(7)"),
    "breaks": ("1 / 0\n", "cannot import breaks: ZeroDivisionError"),
    "garbled": ("def (\n", "cannot import garbled: SyntaxError"),
    "loops": ("while True:\n    pass\n", "importing loops:Mine does not end within 1 s"),
    "raises": (
        SCHEDULER + "    def __init__(self, *a, **k):\n        raise ValueError('not\\ntoday')\n",
        "Mine.__init__ raised ValueError: not today",
    ),
    "builds": (
        SCHEDULER + "    def __init__(self, *a, **k):\n        while True:\n            pass\n",
        "Mine.__init__ does not return within 1 s",
    ),
    "blind": (
        (
            "class Mine:\n    def __init__(self, **k):\n        pass\n"
            "    add_request = schedule = update_from_output = finish_requests = __init__\n"
        ),
        "cannot observe the tracked requests: looked for scheduler.requests on Mine",
    ),
}


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which a user's modules lie."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return tmp_path


@pytest.mark.parametrize("module", BAD)
def test_a_class_that_cannot_be_used_is_one_line(
    module: str, users_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, told = BAD[module]
    (users_folder / f"{module}.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr("vllm_lifecycle.adapters.vllm.target.IMPORT_SECONDS", 1.0)
    monkeypatch.setattr("vllm_lifecycle.adapters.vllm.target.BUILD_SECONDS", 1.0)
    assert main(["check", f"{module}:Mine", "--scope", "alone", "--seconds", "3"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"vllm-lifecycle: {told}")
    assert "Traceback" not in err


def test_a_pass_that_never_returns_is_found(
    users_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("play", "search", "report"):
        monkeypatch.setattr(f"vllm_lifecycle.adapters.vllm.{module}.PATIENCE", 0.5)
    loop = SCHEDULER + "    def schedule(self, *a, **k):\n        while True:\n            pass\n"
    (users_folder / "hangs.py").write_text(loop, encoding="utf-8")
    assert main(["check", "hangs:Mine", "--scope", "alone", "--seconds", "5", "--format", "json"]) == REFUTED
    [verdict] = json.loads(capsys.readouterr().out)["sections"][0]["verdicts"]
    assert verdict["reason"].startswith("the call does not return (waited 0.5 s) at hangs.py:")
    assert [s["action"].partition("(")[0] for s in verdict["trace"]] == ["add_request", "schedule"]


def test_findings_are_saved_replayed_and_known(
    users_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stock scheduler has findings; after a baseline of them nothing is new, and each is there to be replayed."""
    leak = SCHEDULER + "    def _free_blocks(self, request):\n        del self.requests[request.request_id]\n"
    (users_folder / "leaks.py").write_text(leak, encoding="utf-8")
    search = ["check", "leaks:Mine", "--scope", "alone", "--seconds", "3", "--format", "json"]
    assert main([*search, "--save", "found"]) == REFUTED
    saved = sorted(Path("found").glob("*.json"))
    assert saved
    assert len(list(Path("found").iterdir())) == 2 * len(saved)
    assert main(["replay", str(saved[0])]) == REFUTED
    assert main([*search, "--baseline", "known.json", "--update-baseline"]) == 0
    capsys.readouterr()
    assert main([*search, "--baseline", "known.json", "--expect", "known.json"]) == 0
    [verdict] = json.loads(capsys.readouterr().out)["sections"][0]["verdicts"]
    assert (verdict["claim"], verdict["outcome"]) == ("nothing_new_falls_in_this_search", "holds")
    assert verdict["assumptions"][0].startswith("known: ")


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
