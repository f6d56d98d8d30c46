"""Files that a command writes beside what it prints: `--html`, `--write`, and the summary of a step of GitHub Actions.

Whether a file can be written is found out before the work, and each is written whole or not at all. What was found is printed
first, so that a full disk does not lose it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_lifecycle.adapters import files
from vllm_lifecycle.adapters.cli import forms
from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.report.model import Report

Place = tuple[str, Path]
"""A form and the file to write it to."""


def prepare(html: str | None, wanted: Sequence[str]) -> list[Place]:
    """The files to write, from `--html` and each `FORM=FILE` of `--write`; raises UsageProblem when one cannot be."""
    if html is not None and importlib.util.find_spec("jinja2") is None:
        raise UsageProblem("--html needs jinja2, which is not installed: pip install jinja2")
    places = [] if html is None else [("html", Path(html))]
    for text in wanted:
        form, _, name = text.partition("=")
        if form not in forms.MARKS or form == "html" or not name:
            raise UsageProblem(
                f"--write {text!r} is not FORM=FILE: write it as junit=FILE, sarif=FILE or markdown=FILE"
            )
        places.append((form, Path(name)))
    if len({file.absolute() for _, file in places}) < len(places):
        raise UsageProblem("--html and --write name one file twice: give each form a file of its own")
    try:
        for form, file in places:
            files.check_folder(file.parent)
            files.check_place(file, forms.MARKS[form])
    except files.NotWritten as why:
        raise UsageProblem(str(why)) from None
    return places


def write(places: Sequence[Place], report: Report) -> None:
    """Write the files; raises UsageProblem, and leaves what was there, when one cannot be written."""
    try:
        for form, file in places:
            text = forms.FORMS[form](report).encode(errors="replace").decode()
            files.write(file, text, forms.MARKS[form])
            print(f"written: {file}", file=sys.stderr)
    except files.NotWritten as why:
        raise UsageProblem(str(why)) from None


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
