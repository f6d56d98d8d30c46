"""A finding as a self-contained pytest: it fails where the property falls, passes where it holds, and else is skipped.

The test states the scope and the events as code of this package's public names, only what differs from the defaults, so that
it can be read, edited and kept as a regression test.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from .report import Finding
from .scope import Match

MARK = "Written by `vllm-lifecycle check --save`"
"""Stands in the head of every saved test."""
WIDTH = 100


def test_text(finding: Finding, name: str) -> str:
    """The source of the test."""
    names = {"Scope", *(type(e).__name__ for e in finding.events)}
    names |= {"Match" for value in (finding.scope, *finding.events) if "Match(" in code(value)}
    told = [line for number, step in enumerate(finding.steps, 1) for line in step.lines(number)]
    at = f"At {finding.site}. " if finding.site else ""
    rule = f" ({finding.breach})" if finding.breach else ""
    head = [
        f"{MARK}.",
        "",
        *wrapped(f"{finding.claim}: {finding.message}"),
        *wrapped(f"{at}Fault: {finding.fault}{rule}. Found on vLLM {finding.version}."),
        "",
        *told,
        *([f"      {finding.outlook}"] if finding.outlook else []),
    ]
    lines = [
        '"""' + "\n".join(head).replace("\\", "\\\\").replace('"""', "'''"),
        '"""',
        "",
        "import pytest",
        "",
        f"from vllm_lifecycle.adapters.vllm import {', '.join(sorted(names))}, replay",
        "",
        f"TARGET = {code(finding.target)}",
        f"SCOPE = {code(finding.scope)}",
        "EVENTS = (",
        *(f"    {code(event)}," for event in finding.events),
        ")",
        "",
        "",
        f"def test_{name}() -> None:",
        f"    again = replay(TARGET, SCOPE, EVENTS, {code(finding.claim)})",
        "    if again.fell:",
        "        pytest.fail(again.text(), pytrace=False)",
        "    if not again.holds:",
        "        pytest.skip(again.reason)",
    ]
    return "\n".join(lines) + "\n"


def code(value: Any) -> str:
    """Python source of a value of the vocabulary: strings, numbers, tuples, and rows without their defaults."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        inner = ", ".join(code(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_arguments(value))})"
    return repr(value)


def _arguments(row: Any) -> Iterator[str]:
    for f in dataclasses.fields(row):
        value = getattr(row, f.name)
        default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        if value != default or isinstance(row, Match):
            yield f"{f.name}={code(value)}"


def wrapped(text: str) -> list[str]:
    """The text in lines of a docstring's width."""
    return textwrap.wrap(text, WIDTH) or [""]
