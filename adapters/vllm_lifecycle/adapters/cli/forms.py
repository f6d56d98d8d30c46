"""The forms of a report for CI and for browsers, by name: what `--format`, `--write` and `--html` write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from vllm_lifecycle.adapters.cli.services import versions
from vllm_lifecycle.adapters.report.model import Report

MARKS = {
    "html": "<!-- A report of vllm-lifecycle -->",
    "junit": '<testsuites name="vllm-lifecycle',
    "markdown": "`vllm-lifecycle",
    "sarif": '"name": "vllm-lifecycle"',
}
"""Form -> what stands in the head of its files, so that only such a file is replaced; the forms that can be written."""


def _html(report: Report) -> str:
    from vllm_lifecycle.adapters.report.page import html

    return html(report, versions(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")


def _junit(report: Report) -> str:
    from vllm_lifecycle.adapters.report.junit import junit

    return junit(report)


def _sarif(report: Report) -> str:
    from vllm_lifecycle.adapters.report.sarif import sarif

    return sarif(report, versions().get("vllm-lifecycle", "0"))


def _github(report: Report) -> str:
    from vllm_lifecycle.adapters.report.github import commands

    return commands(report)


def _markdown(report: Report) -> str:
    from vllm_lifecycle.adapters.report.markdown import markdown

    return markdown(report)


FORMS: Mapping[str, Callable[[Report], str]] = {
    "html": _html,
    "junit": _junit,
    "sarif": _sarif,
    "github": _github,
    "markdown": _markdown,
}
