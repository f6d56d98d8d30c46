"""Where a verdict belongs: the line of the scheduler that made the property fall, else the line of the specification.

A path is relative to the current folder when the file is there (a checkout in CI), else to where packages are installed, which
is the same on every machine.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_lifecycle.spec.check.verdict import Verdict

PACKAGE = "vllm_lifecycle.spec"
PARTS = ("lifecycles", "mutants", "properties")
WHOLE = "lifecycles/system.py"
SITE = re.compile(r"(.+?):(\d+)(?: (.*))?")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; `here` says that the path is relative to the current folder."""

    path: str
    line: int
    here: bool
    function: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def place(verdict: Verdict) -> Place:
    """Where to send the reader of a verdict."""
    site = SITE.fullmatch(str(verdict.numbers.get("site", "")))
    if site:
        return Place(site[1], int(site[2]), Path(site[1]).is_file(), site[3] or "")
    return defined(str(verdict.numbers.get("mutant", verdict.claim)))


def defined(name: str) -> Place:
    """The definition of a property, action or mutant of the specification; of the whole for any other name."""
    found = _definitions()
    file, line = found.get(name) or found[WHOLE]
    folder, here = _folder(), Path.cwd()
    if folder.is_relative_to(here):
        return Place((folder / file).relative_to(here).as_posix(), line, True)
    return Place(f"{PACKAGE.replace('.', '/')}/{file}", line, False)


@cache
def _definitions() -> Mapping[str, tuple[str, int]]:
    """Name -> file below the specification and line; the file of the whole under its own name."""
    found = {WHOLE: (WHOLE, 1)}
    for part in PARTS:
        for file in sorted((_folder() / part).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    found.setdefault(node.name, (f"{part}/{file.name}", node.lineno))
    return found


def _folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
