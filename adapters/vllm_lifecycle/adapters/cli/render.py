"""Reports, verdicts and traces as text and as JSON: the only place that lays them out.

Text: one table row for each section, or for each claim with `details`; then everything that does not hold, each with its reason
and trace; then the assumptions of each section; then one closing line with the outcome. JSON: the same report, nothing left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_lifecycle.adapters.cli.explain import Entry
from vllm_lifecycle.adapters.report import words
from vllm_lifecycle.adapters.report.model import Report
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

_COLOURS = {Outcome.HOLDS: "32", Outcome.REFUTED: "31", Outcome.NOT_ESTABLISHED: "33"}


def to_text(report: Report, *, details: bool, traces: bool = False, colour: bool = False) -> str:
    """The report for people; `details` gives each claim a row, `traces` shows those of claims that hold too."""
    blocks = [_table(report, details=details, colour=colour)]
    verdicts = [v for s in report.sections for v in s.verdicts]
    blocks += _failures([v for v in verdicts if v.outcome is not Outcome.HOLDS])
    held = [v for v in verdicts if v.outcome is Outcome.HOLDS]
    blocks += [_evidence(v, v.trace) for v in held if traces and v.trace]
    blocks += [_evidence(v, ()) for v in held if details and not v.trace and words.evidence(v)]
    blocks += [_uses(v) for v in verdicts if v.numbers.get("uses")]
    assumed = [line for where, them in words.assumptions(report) for line in (f"{where}:", *_indented(them))]
    if assumed:
        blocks.append("\n".join(["assumptions:", *_indented(assumed)]))
    blocks.append(f"{report.command}: {report.outcome.value} ({report.seconds:.1f} s)")
    return "\n\n".join(blocks)


def to_json(report: Report) -> str:
    """The report for programs."""
    return dump(
        {
            "command": report.command,
            "outcome": report.outcome.value,
            "exit_code": report.exit_code,
            "seconds": round(report.seconds, 3),
            "sections": [
                {
                    "title": s.title,
                    "outcome": s.outcome.value,
                    "seconds": round(s.seconds, 3),
                    "verdicts": [_as_data(v) for v in s.verdicts],
                }
                for s in report.sections
            ],
        }
    )


def dump(data: Mapping[str, Any]) -> str:
    """Any result as JSON text; values that JSON does not know are written as text."""
    return json.dumps(data, indent=1, default=str, ensure_ascii=False)


def entries_to_text(entries: Sequence[Entry]) -> str:
    """Explanations for people."""
    return "\n\n".join(_entry(e) for e in entries)


def entries_to_json(entries: Sequence[Entry]) -> str:
    """Explanations for programs."""
    return dump(
        {"entries": [{"kind": e.kind, "name": e.name, "doc": e.doc, **dict(e.facts)} for e in entries]}
    )


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Columns padded to their widest cell."""
    whole = [header, *rows]
    widths = [max(len(row[i]) for row in whole) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in whole]
    return "\n".join(lines)


def _as_data(verdict: Verdict) -> dict[str, Any]:
    return {
        "claim": verdict.claim,
        "outcome": verdict.outcome.value,
        "engine": verdict.engine,
        "scope": verdict.scope,
        "assumptions": list(verdict.assumptions),
        "reason": verdict.reason,
        "trace": [
            {"action": s.action, "params": dict(s.params), "changes": dict(s.changes)} for s in verdict.trace
        ],
        "numbers": dict(verdict.numbers),
    }


def _table(report: Report, *, details: bool, colour: bool) -> str:
    rows: list[tuple[Outcome, tuple[str, ...]]]
    if details:
        header: tuple[str, ...] = ("claim", "scope", "extent")
        verdicts = [v for s in report.sections for v in s.verdicts]
        rows = [(v.outcome, (v.claim, v.scope, words.numbers(v.numbers))) for v in verdicts]
    else:
        header = ("checked", "claims", "extent", "time")
        rows = [
            (s.outcome, (s.title, words.claims(s), words.extent(s), f"{s.seconds:.1f} s"))
            for s in report.sections
        ]
    shown = table([(outcome.value, *rest) for outcome, rest in rows], ("outcome", *header))
    if not colour:
        return shown
    first, *lines = shown.split("\n")
    return "\n".join([first, *(_paint(line, row[0]) for line, row in zip(lines, rows, strict=True))])


def _paint(line: str, outcome: Outcome) -> str:
    word = outcome.value
    return f"\033[{_COLOURS[outcome]}m{word}\033[0m{line.removeprefix(word)}"


def _failures(verdicts: Sequence[Verdict]) -> list[str]:
    """One block for each failure; those that say nothing of their own (all interrupted, all cut off) share one."""
    shared: dict[tuple[Outcome, str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        own = verdict.claim if verdict.trace or words.evidence(verdict) or not verdict.reason else ""
        shared.setdefault((verdict.outcome, verdict.engine, verdict.scope, own or verdict.reason), []).append(
            verdict
        )
    blocks = []
    for same in shared.values():
        if len(same) == 1:
            blocks.append(_evidence(same[0], same[0].trace))
        else:
            together = replace(same[0], claim=f"{len(same)} claims", numbers={})
            blocks.append("\n".join([_evidence(together, ()), *(f"    {v.claim}" for v in same)]))
    return blocks


def _evidence(verdict: Verdict, trace: Sequence[TraceStep]) -> str:
    where = ", ".join(part for part in (verdict.engine, verdict.scope) if part)
    lines = [f"{verdict.outcome.value}: {verdict.claim}" + (f"  [{where}]" if where else "")]
    if verdict.reason:
        lines.append(f"  {verdict.reason}")
    for name, evidence in words.evidence(verdict):
        lines += [f"  {name}:", *(f"    {line}" for line in evidence.splitlines())]
    return "\n".join([*lines, *_indented(words.trace_lines(trace))])


def _uses(verdict: Verdict) -> str:
    rows = [f"{obligation}: {', '.join(claims)}" for obligation, claims in verdict.numbers["uses"].items()]
    return "\n".join([f"{verdict.claim} uses", *_indented(rows)])


def _entry(entry: Entry) -> str:
    lines = (
        [] if entry.kind == "contents" else [f"{entry.kind} {entry.name}", *_indented(entry.doc.splitlines())]
    )
    for heading, facts in entry.facts:
        lines += [f"{heading}:", *_indented(facts)]
    return "\n".join(lines)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
