"""The pytest plugin: explore a scheduler class in a test, or watch the scheduler that a test drives itself.

pytest imports this module in every run of whoever has the package installed, so it imports nothing but pytest: engines and vLLM
are imported when a test asks for them. What falls is shown as the sequence of calls, without a Python traceback, since the
interesting code is in the scheduler and not in the test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.explore import Exploration
    from vllm_lifecycle.adapters.vllm.monitor import Monitor
    from vllm_lifecycle.adapters.vllm.scope import Scope

__all__ = ["lifecycle_check", "lifecycle_monitor"]

Watch = Callable[..., "Monitor"]


def lifecycle_check(
    scheduler: type[Any] | str = "vllm",
    *,
    scope: str | Scope | Sequence[str | Scope] = (),
    contract: str = "legal",
    seconds: float = 30.0,
    seed: int = 0,
    connector: type[Any] | str | None = None,
    accept: Collection[str] = (),
    inherited: bool = False,
) -> Exploration:
    """Explore a scheduler class and fail the test with the shortest sequence of each finding.

    `scope` is one or several scopes or their names, all of the contract's when none is given. `accept` names properties whose
    fall is known. `connector` is a KV connector class of yours, which then answers for itself; only what is its fault fails the
    test. Without it, what vLLM's own class shows on the same sequence is vLLM's and does not fail the test; `inherited` makes
    all findings count. The exploration is returned: its coverage says what was searched. A target that cannot be explored fails
    with one line.
    """
    from vllm_lifecycle.adapters.pytest_plugin import exploring

    try:
        found, failures = exploring.explore(
            scheduler,
            scope=scope,
            contract=contract,
            seconds=seconds,
            seed=seed,
            connector=connector,
            accept=accept,
            inherited=inherited,
        )
    except exploring.Refused as why:
        pytest.fail(str(why), pytrace=False)
    if failures:
        pytest.fail("\n\n".join(["", *(f.text() for f in failures)]), pytrace=False)
    return found


@pytest.fixture
def lifecycle_monitor() -> Iterator[Watch]:
    """Watch a scheduler that the test built: `lifecycle_monitor(scheduler, accept=())`.

    Call it before the first request. From then on the properties are checked after each call of `schedule`,
    `update_from_output`, `add_request`, `finish_requests`, `reset_prefix_cache` and `set_pause_state`; the test fails at the
    call after which one fell. `accept` names properties whose fall is known.
    """
    from vllm_lifecycle.adapters.vllm.correspondence import MissingSeam
    from vllm_lifecycle.adapters.vllm.monitor import Monitor, NotFresh

    watching: list[Monitor] = []

    def watch(scheduler: Any, accept: Collection[str] = ()) -> Monitor:
        try:
            watching.append(Monitor(scheduler, _fail, accept))
        except (MissingSeam, NotFresh) as why:
            _fail(str(why))
        return watching[-1]

    yield watch
    for monitor in watching:
        monitor.stop()


def _fail(text: str) -> None:
    pytest.fail(text, pytrace=False)
