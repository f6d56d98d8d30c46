"""The report for GitHub Actions: annotations on standard output, and the Markdown as the summary of the step.

Every line printed is a workflow command whose text is escaped, so that nothing a target prints through a request id or a message
can be taken for a command. GitHub shows ten errors and ten warnings of a step; the summary has them all.
"""

from __future__ import annotations

from vllm_lifecycle.adapters.report import places, words
from vllm_lifecycle.adapters.report.markdown import markdown
from vllm_lifecycle.adapters.report.model import Report
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Environment variable that names the file of the summary."""
LARGEST = 1_000_000
"""Bytes that GitHub takes as a summary of one step, with some room left."""
COMMANDS = {Outcome.REFUTED: "error", Outcome.NOT_ESTABLISHED: "warning"}


def commands(report: Report) -> str:
    """The lines to print."""
    bad = [v for _, v in words.all_verdicts(report) if v.outcome is not Outcome.HOLDS]
    told = ", ".join(words.claims(s) for s in report.sections) or "nothing was checked"
    text = f"{report.outcome.value}: {told} ({report.seconds:.1f} s)"
    last = _command("notice", {"title": f"vllm-lifecycle {report.command}"}, text)
    return "\n".join([*(_annotation(v) for v in bad), last])


def summary(report: Report) -> str:
    """The Markdown of the step, cut where GitHub would refuse it."""
    text = markdown(report) + "\n\n"
    whole = text.encode()
    if len(whole) <= LARGEST:
        return text
    kept = whole[:LARGEST].decode(errors="ignore").rpartition("\n### ")[0]
    return (
        f"{kept}\n\nCut here: the rest is too long for a summary. `--format markdown` prints all of it.\n\n"
    )


def _annotation(verdict: Verdict) -> str:
    place = places.place(verdict)
    where = {"file": place.path, "line": str(place.line)} if place.here else {}
    title = f"{verdict.outcome.value}: {verdict.claim}"
    return _command(COMMANDS[verdict.outcome], {**where, "title": title}, words.account(verdict) or title)


def _command(name: str, options: dict[str, str], text: str) -> str:
    given = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in options.items())
    return f"::{name} {given}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    """As GitHub reads it back: percent first, then what ends a line, then what ends a property."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
