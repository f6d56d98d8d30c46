"""The report as one page: no network, light and dark, every text from outside escaped by the template engine.

The page has a content security policy that lets only its own script run, so that a text that slipped through could do nothing.
Its script only adds to what stands in the document: without it all is there to be read. Rejected: gluing strings (one forgotten
escape is an injection), a JavaScript framework or Mermaid (megabytes in each report, or a network).

Jinja2 is a dependency of the core, not an extra: 0.2 MB without anything behind it that vLLM does not install itself, and a
first report would else begin with another install.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from vllm_lifecycle.adapters.report import cases, words
from vllm_lifecycle.adapters.report.diagrams import Diagram, diagrams
from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.statemachine.tables import tables

MANY = 20
"""Verdicts from which on the page offers a filter."""
SIGNS = {
    Outcome.HOLDS: ("holds", "✓"),
    Outcome.REFUTED: ("refuted", "✗"),
    Outcome.NOT_ESTABLISHED: ("open", "?"),
}


def html(report: Report, versions: Mapping[str, str], made: str = "") -> str:
    """The page of a report; `versions` by package and `made` (a date, or nothing) stand in its head."""
    linked = cases.number(report)
    shown = {i: cases.case(v, name) for i, (v, name) in linked.items()}
    verdicts = [v for s in report.sections for v in s.verdicts]
    template = _environment().get_template("report.html.j2")
    script = _part("report.js")
    text: str = template.render(
        style=_safe(_part("report.css")),
        script=_safe(script),
        script_hash=_hash(script),
        outcome=_outcome(report.outcome),
        command=f"vllm-lifecycle {report.command}",
        summary=_summary(report),
        made=", ".join(
            [*(f"{name} {version}" for name, version in versions.items()), *([made] if made else [])]
        ),
        many=len(verdicts) > MANY,
        sections=[_section(s, linked) for s in report.sections],
        cases=[{**c, "outcome": _outcome(linked[i][0].outcome)} for i, c in shown.items() if not c["defect"]],
        defects=[{**c, "outcome": _outcome(linked[i][0].outcome)} for i, c in shown.items() if c["defect"]],
        diagrams=lifecycles(),
        assumptions=words.assumptions(report),
    )
    return text


@cache
def lifecycles() -> tuple[Diagram, ...]:
    """The diagrams of all lifecycles of the specification."""
    return tuple(d for table in tables().values() for d in diagrams(table))


def _summary(report: Report) -> str:
    count = sum(len(s.verdicts) for s in report.sections)
    tally: dict[str, int] = {}
    for section in report.sections:
        for outcome, number in section.tally.items():
            tally[outcome.value] = tally.get(outcome.value, 0) + number
    told = ", ".join(f"{n} {word}" for word, n in tally.items()) or "nothing was checked"
    return f"{count} {'claim' if count == 1 else 'claims'}: {told}; {report.seconds:.1f} s" if count else told


def _section(section: Section, linked: Mapping[int, tuple[Verdict, str]]) -> dict[str, Any]:
    extent = words.extent(section)
    return {
        "title": section.title,
        "outcome": _outcome(section.outcome),
        "open": section.outcome is not Outcome.HOLDS,
        "extent": "; ".join(
            part for part in (words.claims(section), extent, f"{section.seconds:.1f} s") if part
        ),
        "rows": [_row(v, linked.get(id(v), (v, ""))[1]) for v in words.verdicts_of(section)],
    }


def _row(verdict: Verdict, link: str) -> dict[str, Any]:
    return {
        "outcome": _outcome(verdict.outcome),
        "claim": verdict.claim,
        "reason": verdict.reason,
        "scope": verdict.scope,
        "engine": verdict.engine,
        "extent": words.numbers(verdict.numbers),
        "evidence": words.evidence(verdict),
        "link": link,
    }


def _outcome(outcome: Outcome) -> dict[str, str]:
    kind, sign = SIGNS[outcome]
    return {"kind": kind, "sign": sign, "word": outcome.value}


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["soft"] = _soft
    return environment


@cache
def _part(name: str) -> str:
    """One of the page's own files, with line ends as they come out of a parser (the script's hash depends on them)."""
    text: str = _environment().loader.get_source(_environment(), name)[0]
    return text.replace("\r\n", "\n")


def _soft(text: str) -> Any:
    """The text, escaped, in lines that may end after `_`, `/` and `.`, so that long names break where people would."""
    from markupsafe import Markup, escape

    parts = re.split(r"(?<=[_/.])(?=\w)", text)
    return Markup("<wbr>").join(escape(part) for part in parts)


def _safe(own: str) -> Any:
    """A text of the page itself, not to be escaped."""
    from markupsafe import Markup

    return Markup(own)


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
