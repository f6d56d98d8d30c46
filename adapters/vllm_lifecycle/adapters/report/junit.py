"""The report as JUnit XML: a suite for each section, a test for each verdict.

Refuted is a failure, not established is an error: both make a build red. Nothing is ever skipped, since a skipped test is
green to most readers. Characters that XML cannot hold are replaced.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from xml.etree import ElementTree as Tree

from vllm_lifecycle.adapters.report import words
from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

TAGS = {Outcome.REFUTED: "failure", Outcome.NOT_ESTABLISHED: "error"}
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The XML text."""
    every = words.all_verdicts(report)
    root = Tree.Element(
        "testsuites", name=_text(f"vllm-lifecycle {report.command}"), time=_seconds(report.seconds)
    )
    _count(root, [v for _, v in every])
    for _, part in groupby(every, key=lambda one: id(one[0])):
        pairs = list(part)
        _suite(root, pairs[0][0], [v for _, v in pairs])
    Tree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Tree.tostring(root, encoding="unicode")}'


def _suite(root: Tree.Element, section: Section, verdicts: list[Verdict]) -> None:
    suite = Tree.SubElement(root, "testsuite", name=_text(section.title), time=_seconds(section.seconds))
    _count(suite, verdicts)
    seen: Counter[str] = Counter()
    for verdict in verdicts:
        name = f"{verdict.claim} [{verdict.scope}]" if verdict.scope else verdict.claim
        seen[name] += 1
        test = Tree.SubElement(
            suite,
            "testcase",
            name=_text(name if seen[name] == 1 else f"{name} ({seen[name]})"),
            classname=re.sub(r"\W+", "_", section.title),
            time=_seconds(verdict.numbers.get("seconds", 0.0)),
        )
        if verdict.outcome is not Outcome.HOLDS:
            message = _text(verdict.reason or f"{verdict.claim} is {verdict.outcome.value}")
            bad = Tree.SubElement(test, TAGS[verdict.outcome], type=verdict.outcome.value, message=message)
            bad.text = _text(words.account(verdict))
        elif told := words.account(verdict):
            Tree.SubElement(test, "system-out").text = _text(told)


def _count(element: Tree.Element, verdicts: list[Verdict]) -> None:
    outcomes = Counter(v.outcome for v in verdicts)
    element.set("tests", str(len(verdicts)))
    element.set("failures", str(outcomes[Outcome.REFUTED]))
    element.set("errors", str(outcomes[Outcome.NOT_ESTABLISHED]))


def _seconds(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "0.000"


def _text(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
