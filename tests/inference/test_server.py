"""Through the OpenAI-compatible server: an OpenAI client gets the tokens that vLLM's class gave `LLM`, from vLLM's and from ours.

What a server schedules depends on when its clients' requests arrive, so batches differ from run to run; the model's tokens do
not (`compare.NEAR_TIE`). A client that leaves stops its request at a moment of chance: what it received by then is compared.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.inference.compare import OURS, contradictions
from tests.inference.conftest import COUNT
from tests.inference.engine import DEFAULT, class_name
from tests.inference.server import ask, counters, serving
from tests.inference.workload import scenarios

pytestmark = pytest.mark.inference
SERVED = [
    pytest.param(scenario, id=scenario.name)
    for scenario in scenarios(COUNT)
    if scenario.name in ("drafted", "pressed", "overlapped, pressed")
]


@pytest.mark.parametrize("scheduler", [pytest.param(DEFAULT, id="default"), pytest.param(OURS, id="ours")])
@pytest.mark.parametrize("scenario", SERVED)
def test_a_client_receives_the_same_tokens(
    results: dict[str, Any], model: Path, tmp_path: Path, scenario: Any, scheduler: str
) -> None:
    log = tmp_path / "server.log"
    with serving(model, scenario, class_name(scheduler, scenario), log) as url:
        outcomes = ask(url, model, scenario.asked())
        counted = counters(url)
    assert list(contradictions(results["default"][scenario.name]["outcomes"], outcomes)) == []
    assert sum(outcome["reason"] == "left" for outcome in outcomes.values()) > 0
    assert {event: counted[event] for event in scenario.must if event in counted and not counted[event]} == {}
    assert ("Using custom scheduler class" in log.read_text(errors="replace")) == (scheduler == OURS)
