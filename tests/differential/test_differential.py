"""The harness finds what differs and nothing else; the verified scheduler is equal to the original with named defects mended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from tests.differential.groups import AHEAD, GROUPS
from tests.differential.mutants import MUTANTS, Raises
from tests.differential.run import STOCK, STOCK_ASYNC, Classes, load, play, run_group, save
from tests.differential.settings import Abort, Add, Answer, Case, Setup, Step
from tests.differential.witnesses import MUST

pytestmark = pytest.mark.vllm
OURS = "vllm_lifecycle.adapters.vllm.verified:VerifiedScheduler"
OURS_ASYNC = "vllm_lifecycle.adapters.vllm.verified:VerifiedAsyncScheduler"


def must(group: str) -> frozenset[str]:
    """What a group must reach; later releases count no common prefix (their cascade attention asks elsewhere)."""
    later = hasattr(import_module("vllm.v1.core.sched.interface"), "PauseState")
    return MUST[group.removesuffix(AHEAD)] - ({"common prefix"} if later else set())


def steps(group: str) -> int:
    """How many steps are played here: fewer where only the timing differs from another group."""
    return 160 if group.endswith(AHEAD) else 480


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The original logs each failed load."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("group", GROUPS)
def test_the_original_equals_itself_and_each_group_reaches_what_it_is_named_for(group: str) -> None:
    report = run_group(Classes.named(STOCK, STOCK_ASYNC, plain=True), group, steps(group), seed=0)
    assert report.failure is None, str(report.failure)
    assert must(group) <= set(report.met)


@pytest.mark.parametrize("group", GROUPS)
def test_ours_equals_the_original_but_for_named_rows(group: str) -> None:
    report = run_group(Classes.named(OURS, OURS_ASYNC, plain=False), group, steps(group), seed=1)
    assert report.failure is None, str(report.failure)


@pytest.mark.parametrize(("mutant", "group"), MUTANTS.items(), ids=[m.__name__ for m in MUTANTS])
def test_a_mutant_is_found_and_its_case_is_short(mutant: type, group: str) -> None:
    name = f"{mutant.__module__}:{mutant.__name__}"
    failure = run_group(Classes.named(name, name, plain=True), group, 1200, seed=0).failure
    assert failure is not None
    assert bool(failure.pair.sides[1].trace) == (mutant is Raises), (
        f"it differs, and does not break:\n{failure}"
    )
    assert len(failure.case.events) <= 24, str(failure)
    assert "Case(Setup(" in str(failure)


def test_a_saved_case_replays_as_it_was(tmp_path: Path) -> None:
    case = Case(
        Setup(blocks=9), (Add("a", own=3, answer=2), Step(), Abort(("a",)), Answer(1), Step(), Answer(0))
    )
    save(case, tmp_path / "case.json")
    assert load(tmp_path / "case.json") == case
    assert play(Classes.named(STOCK, STOCK_ASYNC, plain=True), case.setup, case.events).divergence is None


def test_deleting_any_event_leaves_a_case_that_runs() -> None:
    classes = Classes.named(STOCK, STOCK_ASYNC, plain=True)
    events = (Add("a", own=9, answer=3), Step(), Answer(0), Add("b", own=2), Step(), Abort(("b",)), Answer(2))
    for i in range(len(events)):
        assert play(classes, Setup(), (*events[:i], *events[i + 1 :])).divergence is None
