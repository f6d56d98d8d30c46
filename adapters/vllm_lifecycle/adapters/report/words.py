"""Words for the parts of a report that every form shows: extent, claims, assumptions, traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.spec.check.verdict import TraceStep, Verdict

_TOGETHER: dict[str, Callable[[Iterable[int]], int]] = {
    "obligations": sum,
    "states": max,
    "transitions": max,
}
_SHOWN_NUMBERS = {
    "obligations": "obligations",
    "states": "states",
    "transitions": "transitions",
    "depth": "levels",
    "length": "steps to show",
}


def claims(section: Section) -> str:
    """How many claims of a section have which outcome."""
    return ", ".join(f"{count} {outcome.value}" for outcome, count in section.tally.items()) or "none"


def extent(section: Section) -> str:
    """How much was looked at: obligations add up over claims; the states of a search are common to all its claims."""
    found = {name: [v.numbers[name] for v in section.verdicts if name in v.numbers] for name in _TOGETHER}
    return numbers({name: _TOGETHER[name](some) for name, some in found.items() if some})


def numbers(counted: Mapping[str, Any]) -> str:
    """How much was looked at for one verdict."""
    return ", ".join(f"{counted[name]:,} {word}" for name, word in _SHOWN_NUMBERS.items() if name in counted)


def assumptions(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    """Each set of assumptions with the titles of the sections that rest on it."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for section in report.sections:
        assumed = tuple(dict.fromkeys(a for v in section.verdicts for a in v.assumptions))
        if assumed:
            titles.setdefault(assumed, []).append(section.title)
    return [(", ".join(where), assumed) for assumed, where in titles.items()]


def evidence(verdict: Verdict) -> list[tuple[str, str]]:
    """The numbers that are texts of several lines."""
    return [(k, v) for k, v in verdict.numbers.items() if isinstance(v, str) and "\n" in v]


def trace_lines(trace: Sequence[TraceStep]) -> list[str]:
    """One numbered line for each step, with the changes below it."""
    lines: list[str] = []
    for number, step in enumerate(trace, start=1):
        lines.append(f"{number:3}. {step if step.params else step.action}")
        lines += [f"       {name}: {text}" if text else f"       {name}" for name, text in step.changes]
    return lines
