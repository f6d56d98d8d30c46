"""Running stages: collect verdicts as they come, keep what is there on Ctrl-C, print the report, leave with its code."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from types import FrameType
from typing import NoReturn, assert_never

import typer

from vllm_lifecycle.adapters.report.model import Progress, Report, Section, Stage
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict


class Format(StrEnum):
    """How the result is printed on standard output."""

    text = "text"
    json = "json"
    junit = "junit"
    sarif = "sarif"
    github = "github"
    markdown = "markdown"


class Plain(StrEnum):
    """The same, for what is no report."""

    text = "text"
    json = "json"


def finish(
    command: str,
    stages: Iterable[Stage],
    form: Format,
    *,
    details: bool,
    traces: bool = False,
    html: str | None = None,
    write: Sequence[str] | None = None,
) -> NoReturn:
    """Run the stages, print the report, write its files, and leave with its exit code; raises UsageProblem."""
    from vllm_lifecycle.adapters.cli import pages

    places = pages.prepare(html, write or ())
    report = carry_out(command, stages)
    emit(printed(report, form, details=details, traces=traces))
    if form is Format.github:
        pages.summarise(report)
    pages.write(places, report)
    raise typer.Exit(report.exit_code)


def printed(report: Report, form: Format, *, details: bool, traces: bool) -> str:
    """The report in one of its forms."""
    from vllm_lifecycle.adapters.cli import forms, render

    match form:
        case Format.text:
            return render.to_text(report, details=details, traces=traces, colour=_coloured())
        case Format.json:
            return render.to_json(report)
        case Format.junit | Format.sarif | Format.github | Format.markdown:
            return forms.FORMS[form.value](report)
        case never:
            assert_never(never)


def carry_out(command: str, stages: Iterable[Stage]) -> Report:
    """Run the stages one after the other; Ctrl-C ends the current one and skips the rest."""
    from vllm_lifecycle.adapters.cli.progress import Reporter

    reporter = Reporter()
    report = Report(command)
    start = time.monotonic()
    with _Interrupt() as interrupt:
        for stage in stages:
            section = Section(stage.title)
            report.sections.append(section)
            begun = time.monotonic()
            reporter.begin(stage.title)
            try:
                # What a scheduler under test or vLLM itself prints must not get into the result.
                with contextlib.redirect_stdout(sys.stderr):
                    _collect(stage, section, reporter.line)
            except KeyboardInterrupt:
                interrupt.seen = True
            if interrupt.seen:
                reason = "interrupted: the rest of this section was not checked"
                section.verdicts.append(Verdict(stage.title, Outcome.NOT_ESTABLISHED, "", "", reason=reason))
            section.seconds = time.monotonic() - begun
            reporter.end(f"{section.outcome.value}, {section.seconds:.1f} s")
            if interrupt.seen:
                break
    report.seconds = time.monotonic() - start
    return report


def _collect(stage: Stage, section: Section, progress: Progress) -> None:
    for verdict in stage.run(progress):
        section.verdicts.append(verdict)


def emit(text: str) -> None:
    """Print a result; a reader that went away (`| head`) is no error, nor is a character that the terminal lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class _Interrupt:
    """Remembers a Ctrl-C even if an engine swallowed the exception to give a partial answer."""

    def __init__(self) -> None:
        self.seen = False

    def __enter__(self) -> _Interrupt:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt
