"""Rules for all tests.

A test that needs the real vLLM may be skipped on a user's machine, never where it was promised. Hypothesis draws the same
examples in every run; HYPOTHESIS_PROFILE=default makes it look further.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# vLLM keeps what it learned of a model class in one file for all releases; kept apart, they do not overwrite each other's.
os.environ.setdefault("VLLM_CACHE_ROOT", f"{sys.prefix}/cache/vllm")

PROMISED = "VLLM_LIFECYCLE_REQUIRE_VLLM"
BROWSER = "VLLM_LIFECYCLE_REQUIRE_BROWSER"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skipped test fails where what it needs was promised: the real vLLM (see scripts/test), a browser (see .ci/run)."""
    report = yield
    xfail = hasattr(report, "wasxfail")
    for promise, marker in ((PROMISED, "vllm"), (PROMISED, "inference"), (BROWSER, "browser")):
        if report.skipped and not xfail and os.environ.get(promise) and item.get_closest_marker(marker):
            report.outcome = "failed"
            report.longrepr = f"skipped although {promise} is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that is skipped as a whole; vllm-omni's own only where the promise names it."""
    report = yield
    promise = os.environ.get(PROMISED, "")
    if report.skipped and promise and ("omni" in promise or "omni" not in report.nodeid):
        report.outcome = "failed"
        report.longrepr = f"skipped although {PROMISED} is set: {report.longrepr}"
    return report
