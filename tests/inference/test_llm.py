"""Through `LLM`, on a real model: vLLM's scheduler and ours give the same tokens in every scenario."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.inference.compare import NEAR_TIE, OURS, differences, nearest_tie
from tests.inference.conftest import COUNT, run_engine
from tests.inference.workload import SCHEMA, Asked, Scenario, scenarios

pytestmark = pytest.mark.inference
SCENARIOS = [pytest.param(scenario, id=scenario.name) for scenario in scenarios(COUNT)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_token_is_the_same(results: dict[str, Any], scenario: Scenario) -> None:
    default, ours = (results[name][scenario.name]["outcomes"] for name in ("default", "ours"))
    assert len(default) == COUNT
    assert list(differences(default, ours, scenario.overlapped)) == []


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", ["default", "ours"])
def test_the_run_went_through_what_it_is_there_for(
    results: dict[str, Any], scenario: Scenario, name: str
) -> None:
    run = results[name][scenario.name]
    assert {event: run["events"][event] for event in scenario.must if not run["events"][event]} == {}
    assert run["in_flight"] == (2 if scenario.overlapped else 1)
    asked = OURS.split(",")[scenario.overlapped].rpartition(".")[2]
    assert (
        run["scheduler"].startswith("vllm.v1.core.sched.") if name == "default" else asked in run["scheduler"]
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_greedy_token_was_chosen_by_rounding(results: dict[str, Any], scenario: Scenario) -> None:
    assert nearest_tie(results["default"][scenario.name]["outcomes"]) > NEAR_TIE


def _fits(asked: Asked, text: str) -> bool:
    structured = asked.sampling["structured_outputs"]
    if "regex" in structured:
        return re.fullmatch(structured["regex"], text) is not None
    if "choice" in structured:
        return text in structured["choice"]
    value = json.loads(text)
    return isinstance(value["ready"], bool) and sorted(value) == sorted(SCHEMA["required"])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_structured_output_that_ended_by_itself_has_its_form(
    results: dict[str, Any], scenario: Scenario
) -> None:
    outcomes = results["ours"][scenario.name]["outcomes"]
    ended = [
        one
        for one in scenario.asked()
        if "structured_outputs" in one.sampling and outcomes[one.name]["reason"] == "stop"
    ]
    assert [one.name for one in ended if not _fits(one, outcomes[one.name]["text"])] == []


def test_two_requests_on_the_same_blocks_are_seen(
    results: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    wrong = "tests.inference.stand_in.Shared,"
    run = run_engine(model, tmp_path / "out.json", wrong, "--count", str(COUNT), "--only", "together")
    default = results["default"]["together"]["outcomes"]
    assert list(differences(default, run[wrong]["together"]["outcomes"])) != []
