"""Words for the parts of a report that every form shows: extent, claims, assumptions, traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

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


NOTHING = "nothing was checked"


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


def all_verdicts(report: Report) -> list[tuple[Section, Verdict]]:
    """Every verdict with its section; see `verdicts_of`."""
    sections = report.sections or [Section(report.command)]
    return [(section, verdict) for section in sections for verdict in verdicts_of(section)]


def verdicts_of(section: Section) -> list[Verdict]:
    """The verdicts of a section; where nothing was checked one that says so, so that no form can look green."""
    return section.verdicts or [Verdict(section.title, Outcome.NOT_ESTABLISHED, "", "", reason=NOTHING)]


def account(verdict: Verdict) -> str:
    """Everything that a verdict has to say, as text: reason, evidence, trace, assumptions."""
    lines = [verdict.reason] if verdict.reason else []
    for name, text in evidence(verdict):
        lines += [f"{name}:", *(f"  {line}" for line in text.splitlines())]
    lines += trace_lines(verdict.trace)
    if verdict.assumptions:
        lines += ["assumptions:", *(f"  {a}" for a in verdict.assumptions)]
    return "\n".join(lines)


def property_of(verdict: Verdict) -> str:
    """The property that a verdict is about: of a mutant, the one that must fall."""
    return str(verdict.numbers.get("property", verdict.claim))


@cache
def meanings() -> Mapping[str, str]:
    """What each property of the specification says, in words."""
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM

    return {p.name: " ".join(p.doc.split()) for p in SYSTEM.properties}
