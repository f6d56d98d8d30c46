"""`--save DIR`: every finding as a JSON file and as a pytest, under a name that is the same in every run.

The name is the property and the function at whose call site it fell.  Findings that share both (other lines of one function) are
numbered by line.  Files of earlier runs are replaced, anything else in the folder is left alone; when one place is taken by
something else, nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vllm_lifecycle.adapters import files

from . import as_test, saved
from .report import Finding


def names(findings: Iterable[Finding]) -> dict[str, Finding]:
    """A file name, without ending, for each finding; independent of the order in which they were found."""
    out: dict[str, Finding] = {}
    for finding in sorted(findings, key=_place):
        claim, _, function, _ = finding.known_as
        base = f"{claim}_in_{function}" if function else claim
        name, number = _plain(base), 1
        while name in out:
            number += 1
            name = f"{_plain(base)}_{number}"
        out[name] = finding
    return out


def save(findings: Iterable[Finding], folder: Path) -> list[Path]:
    """Write all findings; raises files.NotWritten, with nothing written, when a place is taken by something else."""
    texts: dict[str, tuple[str, str]] = {}
    for name, finding in names(findings).items():
        texts[f"{name}.json"] = saved.dump(finding), saved.MARK
        texts[f"test_{name}.py"] = as_test.test_text(finding, name), as_test.MARK
    return files.write_all(folder, texts)


def _place(finding: Finding) -> tuple[str, str, int, str]:
    claim, file, function, call = finding.known_as
    line = re.search(r":(\d+) ", finding.site)
    return claim, f"{file} {function}", int(line[1]) if line else 0, call


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_")
