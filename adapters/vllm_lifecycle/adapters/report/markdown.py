"""The report as GitHub-flavoured Markdown: a table of the sections, then everything that does not hold.

Texts from traces and targets cannot form tags, tables, links or mentions: what is short is escaped, what is long stands in a
fence that is longer than any row of backticks in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vllm_lifecycle.adapters.report import places, words
from vllm_lifecycle.adapters.report.model import Report
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

SIGNS = {Outcome.HOLDS: "✅", Outcome.REFUTED: "❌", Outcome.NOT_ESTABLISHED: "❔"}
SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~$&-])")


def markdown(report: Report) -> str:
    """The Markdown text."""
    bad = [v for _, v in words.all_verdicts(report) if v.outcome is not Outcome.HOLDS]
    lines = [
        f"## {SIGNS[report.outcome]} {code(f'vllm-lifecycle {report.command}')}: {report.outcome.value}",
        "",
        "| outcome | checked | claims | extent | time |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {SIGNS[s.outcome]} {s.outcome.value} | {plain(s.title)} | {words.claims(s)} | {words.extent(s)} "
            f"| {s.seconds:.1f} s |"
            for s in report.sections
        ),
    ]
    for verdict in bad:
        lines += ["", *_failure(verdict)]
    for titles, assumed in words.assumptions(report):
        lines += ["", f"Assumptions of {plain(titles)}:", "", *(f"- {plain(a)}" for a in assumed)]
    return "\n".join(lines)


def _failure(verdict: Verdict) -> Iterator[str]:
    where = plain(", ".join(part for part in (verdict.engine, verdict.scope) if part))
    yield f"### {SIGNS[verdict.outcome]} {verdict.outcome.value}: {code(verdict.claim)}"
    yield ""
    yield f"{where}{'; ' if where else ''}{code(str(places.place(verdict)))}"
    if verdict.reason:
        yield ""
        yield plain(verdict.reason)
    told = words.trace_lines(verdict.trace)
    for name, text in words.evidence(verdict):
        told += [f"{name}:", text]
    if told:
        body = "\n".join(told)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
        yield ""
        yield "<details><summary>how it comes about</summary>"
        yield ""
        yield from (f"{fence}text", body, fence)
        yield ""
        yield "</details>"


def plain(text: str) -> str:
    """Text without any meaning in Markdown, in one line; an `@` mentions nobody."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("@", "@\u200b")


def code(text: str) -> str:
    """Text as code, in one line, also within a table."""
    inside = " ".join(text.split()).replace("|", "\\|")
    ticks = "`" * (1 + max(map(len, re.findall("`+", inside)), default=0))
    pad = " " if inside.startswith("`") or inside.endswith("`") else ""
    return f"{ticks}{pad}{inside}{pad}{ticks}"
