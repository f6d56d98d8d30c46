"""Loaded by pytest with vLLM's tests: puts a scheduler class in the place of vLLM's, and writes down how each test ended.

The place is the module attribute, before any test module is imported, so `from ... import Scheduler` finds it. A test that takes
too long is stopped. Packages that a test file imports for a few of its tests only, and that the environment lacks, are stood in
for, so that the others run. Reads its orders from the environment (OWN_TESTS_*), because a plugin's own options come too late for
a substitution at import.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import MagicMock

import pytest

from own_tests.models import make_hub

SECONDS = int(os.environ.get("OWN_TESTS_SECONDS", "60"))
"""CPU time that a test may take; a quarter of an hour of anything else ends it as well."""
ABSENT = ("ray",)
PLACES = {
    "OWN_TESTS_SCHEDULER": ("vllm.v1.core.sched.scheduler", "Scheduler"),
    "OWN_TESTS_ASYNC_SCHEDULER": ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler"),
}


def pytest_configure(config: pytest.Config) -> None:
    """Make the stand-in models and substitute the classes."""
    make_hub(Path(os.environ["HF_HOME"]) / "hub")
    for name in ABSENT:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock(name=name)
    modules = {module: importlib.import_module(module) for module, _ in PLACES.values()}
    for variable, (module, name) in PLACES.items():
        wanted = os.environ.get(variable)
        if wanted:
            place, _, cls = wanted.partition(":")
            setattr(modules[module], name, getattr(importlib.import_module(place), cls))


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture) -> Generator[pytest.LogCaptureFixture, None, None]:
    """What vLLM logs, which else does not reach the root logger; vLLM's tests have it from the conftest that is left out."""
    logger = logging.getLogger("vllm")
    before, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.INFO):
        yield caplog
    logger.propagate = before


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU time, or no end")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Stop a test that takes too long."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(15 * 60)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _note(**what: str) -> None:
    with Path(os.environ["OWN_TESTS_RESULTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """The test that runs, for whoever finds that the process ended in it."""
    Path(os.environ["OWN_TESTS_RESULTS"]).with_suffix(".now").write_text(nodeid, encoding="utf-8")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return (lines[0] if crash else lines[-1])[:200] if lines else ""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line for each test that ended, or could not begin."""
    if report.when == "call" or report.outcome != "passed":
        _note(test=report.nodeid, outcome=report.outcome, reason=_reason(report) if report.failed else "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported counts as one failed test."""
    if report.failed:
        _note(test=report.nodeid, outcome="failed", reason=_reason(report))
