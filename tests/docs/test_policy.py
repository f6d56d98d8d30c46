"""The policy page, carried out on real vLLM."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("vllm")
from docs.examples import test_shortest

from vllm_lifecycle.adapters.cli.main import main

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHECK = "vllm-lifecycle check docs.examples.shortest_prompt_first:ShortestFirstScheduler --scope loads --seconds 15"
REFUTED = 2


def test_the_code_of_the_page_stands_in_its_example() -> None:
    page = (DOCS / "write-a-policy.md").read_text(encoding="utf-8")
    source = (DOCS / "examples" / "shortest_prompt_first.py").read_text(encoding="utf-8")
    for body in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        assert body.strip("\n") in source


def test_the_command_of_the_page_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS.parent))
    assert main(shlex.split(CHECK)[1:]) in (0, 3)


def test_the_tests_of_the_example_pass() -> None:
    test_shortest.test_short_prompts_run_first()
    test_shortest.test_the_lifecycle_is_kept()


def test_a_policy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_lifecycle.adapters.vllm.verified import settings

    monkeypatch.setenv(settings.POLICY, "docs.examples.shortest_prompt_first:ShortestPromptFirst")
    assert settings.policy("fcfs").name == "shortest-prompt-first"
    for wrong, why in (
        ("nowhere:X", "cannot be loaded"),
        ("json:loads", "is no policy"),
        ("json", "package.module:Class"),
    ):
        monkeypatch.setenv(settings.POLICY, wrong)
        with pytest.raises(ValueError, match=why):
            settings.policy("fcfs")


def test_a_deadline_is_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_lifecycle.adapters.vllm.verified import settings

    monkeypatch.delenv(settings.DEADLINE, raising=False)
    assert settings.deadline() is None
    monkeypatch.setenv(settings.DEADLINE, "30")
    assert settings.deadline() == 30
    for wrong in ("soon", "0", "-1"):
        monkeypatch.setenv(settings.DEADLINE, wrong)
        with pytest.raises(ValueError, match="no number of seconds"):
            settings.deadline()
