"""`lifecycle_check` and the fixture on the real vLLM: whose finding it is, classes made in a test, bad targets."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_lifecycle.adapters.pytest_plugin import Watch, exploring, lifecycle_check
from vllm_lifecycle.adapters.vllm import Match, Scope
from vllm_lifecycle.adapters.vllm.config import SCRIPTED, STOCK, Workshop
from vllm_lifecycle.adapters.vllm.search import HANGS

pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

SMALL = Scope("small", connector=True, matches=(Match("block", True),), events=4)


def scheduler_class() -> type[Any]:
    from vllm.v1.core.sched.scheduler import Scheduler

    found: type[Any] = Scheduler
    return found


def refusal(target: type[Any] | str, **more: Any) -> str:
    """The one line that a bad target is answered with."""
    with pytest.raises(pytest.fail.Exception) as failed:
        lifecycle_check(target, scope=SMALL, seconds=1, **more)
    assert failed.value.pytrace is False
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_what_vllm_shows_too_is_not_the_subclass() -> None:
    class Quiet(scheduler_class()):  # type: ignore[misc]
        """Changes nothing."""

    found = lifecycle_check(Quiet, scope="loads", seconds=4)
    assert found.findings
    with pytest.raises(pytest.fail.Exception, match=found.findings[0].claim):
        lifecycle_check(Quiet, scope="loads", seconds=4, inherited=True)


def test_a_pass_that_never_returns_is_a_finding_and_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("play", "search", "report", "rerun"):
        monkeypatch.setattr(f"vllm_lifecycle.adapters.vllm.{module}.PATIENCE", 0.5)

    class Endless(scheduler_class()):  # type: ignore[misc]
        def schedule(self, *args: Any, **more: Any) -> Any:
            while True:
                pass

    found, mine = exploring.explore(
        Endless,
        scope=("alone", SMALL),
        contract="legal",
        seconds=20,
        seed=0,
        connector=None,
        accept=(),
        inherited=False,
    )
    [finding] = mine
    assert finding.message.startswith("the call does not return (waited 0.5 s) at ")
    assert finding.site.endswith(" schedule")
    assert [s.call.partition("(")[0] for s in finding.steps] == ["add_request", "schedule"]
    assert [c.cut_by for c in found.coverage] == [HANGS, f"not searched: {HANGS}"]


def test_a_wrong_scope_is_one_line() -> None:
    with pytest.raises(pytest.fail.Exception, match="unknown scope 'nothing': choose from alone, "):
        lifecycle_check("vllm", scope="nothing")
    with pytest.raises(pytest.fail.Exception, match="none of these scopes has a connector: leave"):
        lifecycle_check("vllm", scope="alone", connector=SCRIPTED)


def test_a_class_that_does_not_build_is_one_line() -> None:
    class Broken(scheduler_class()):  # type: ignore[misc]
        def __init__(self, *args: Any, **more: Any) -> None:
            raise ValueError("not today")

    class Leaving(scheduler_class()):  # type: ignore[misc]
        def __init__(self, *args: Any, **more: Any) -> None:
            raise SystemExit(3)

    assert refusal(Broken) == "Broken.__init__ raised ValueError: not today"
    assert refusal(Leaving) == "Leaving.__init__ ends the program: SystemExit(3)"


def test_what_is_no_scheduler_is_one_line() -> None:
    class Mute:
        def __init__(self, **more: Any) -> None:
            pass

        add_request = schedule = update_from_output = finish_requests = __init__

    assert "is not a scheduler: it lacks add_request" in refusal(dict)
    assert refusal(Mute).startswith(
        "cannot observe the tracked requests: looked for scheduler.requests on Mute"
    )
    assert "is no KV connector: derive it from" in refusal("vllm", connector=dict)


def test_the_fixture_fails_at_the_call_after_which_a_property_fell(lifecycle_monitor: Watch) -> None:
    class Leaky(scheduler_class()):  # type: ignore[misc]
        def _free_blocks(self, request: Any) -> None:
            del self.requests[request.request_id]

    shop = Workshop(exploring.named(Leaky), Scope("mine"))
    scheduler = shop.scheduler()
    lifecycle_monitor(scheduler)
    scheduler.add_request(shop.request("r0", [1, 2, 3, 4, 5], 2, 1))
    step = scheduler.schedule()
    with pytest.raises(pytest.fail.Exception) as failed:
        scheduler.update_from_output(step, shop.answer({"r0": [99]}, None))
    text = str(failed.value)
    assert failed.value.pytrace is False
    assert "the calls since the scheduler was last empty:\n    1 add_request(r0)" in text
    assert "\n    3 update_from_output(" in text


def test_the_fixture_watches_a_healthy_scheduler(lifecycle_monitor: Watch) -> None:
    shop = Workshop(STOCK, Scope("mine"))
    scheduler = shop.scheduler()
    lifecycle_monitor(scheduler)
    scheduler.add_request(shop.request("r0", [1, 2, 3, 4, 5], 2, 1))
    scheduler.update_from_output(scheduler.schedule(), shop.answer({"r0": [99]}, None))
    assert not scheduler.has_unfinished_requests()


def test_the_fixture_refuses_what_cannot_be_observed(lifecycle_monitor: Watch) -> None:
    with pytest.raises(pytest.fail.Exception, match="cannot observe the tracked requests"):
        lifecycle_monitor(object())
