"""Files that a command writes beside what it prints: the page of `--html`, and the summary of a step of GitHub Actions.

Whether a page can be written is found out before the work, and it is written whole or not at all. What was found is printed
first, so that a full disk does not lose it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from vllm_lifecycle.adapters import files
from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.report.model import Report


def prepare(name: str | None) -> Path | None:
    """The place of the page, ready to be written; raises UsageProblem when it cannot be."""
    if name is None:
        return None
    if importlib.util.find_spec("jinja2") is None:
        raise UsageProblem("--html needs jinja2, which is not installed: pip install jinja2")
    from vllm_lifecycle.adapters.report.page import MARK

    place = Path(name)
    try:
        files.check_folder(place.parent)
        files.check_place(place, MARK)
    except files.NotWritten as why:
        raise UsageProblem(str(why)) from None
    return place


def write(place: Path, report: Report) -> None:
    """Write the page; raises UsageProblem, and leaves what was there, when it cannot be written."""
    from vllm_lifecycle.adapters.cli.services import versions
    from vllm_lifecycle.adapters.report.page import MARK, html

    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    try:
        files.write(place, html(report, versions(), made), MARK)
    except files.NotWritten as why:
        raise UsageProblem(str(why)) from None
    print(f"written: {place}", file=sys.stderr)


def summarise(report: Report) -> None:
    """Add the report to the summary of the step, where there is one; raises UsageProblem."""
    from vllm_lifecycle.adapters.report import github

    name = os.environ.get(github.SUMMARY)
    if not name:
        return
    try:
        with Path(name).open("a", encoding="utf-8") as summary:
            summary.write(github.summary(report))
    except OSError as why:
        raise UsageProblem(
            f"cannot add to the step summary {name} ({why.strerror}): unset {github.SUMMARY}"
        ) from None
