"""Known findings, for CI: a list in a file, kept in the user's repository.

A finding is known by its property, the file and function of its call site, and the kind of call from outside that led there:
line numbers, sequences and messages change from run to run and from release to release, these do not.  The price: another defect
of the same property in the same function counts as known.  Writing a baseline adds to it and removes nothing, since a search
within bounds may miss a finding that is still there; `replay` of its saved file decides whether it is gone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vllm_lifecycle.adapters import files

from .report import Finding

MARK = "vllm-lifecycle known findings 1"


class NoBaseline(ValueError):
    """The file is no list of known findings; the message is one line with the repair."""


@dataclass(frozen=True, order=True)
class Known:
    """What a finding is recognised by."""

    property: str
    file: str = ""
    function: str = ""
    call: str = ""

    @classmethod
    def of(cls, finding: Finding) -> Known:
        """The entry for a finding."""
        return cls(*finding.known_as)

    def __str__(self) -> str:
        call = f" in {self.call}" if self.call else ""
        return f"{self.property} at {self.file} {self.function}{call}" if self.file else self.property


def read(path: Path) -> frozenset[Known]:
    """The known findings of a file; raises NoBaseline."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoBaseline(f"there is no {path}: --baseline {path} --update-baseline writes it") from None
    except OSError as why:
        raise NoBaseline(f"cannot read {path}: {why.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise NoBaseline(f"{path} is no list of known findings: no JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != MARK:
        raise NoBaseline(f'{path} is no list of known findings: it does not begin with "format": "{MARK}"')
    try:
        return frozenset(msgspec.convert(data.get("findings"), list[Known]))
    except msgspec.ValidationError as error:
        raise NoBaseline(f"{path} is no list of known findings: {error}") from None


def write(path: Path, known: Iterable[Known]) -> None:
    """Write a list, sorted; raises files.NotWritten."""
    rows = [dataclasses.asdict(k) for k in sorted(set(known))]
    files.write(path, json.dumps({"format": MARK, "findings": rows}, indent=1) + "\n", MARK)


@dataclass(frozen=True)
class Comparison:
    """Findings held against lists of known ones."""

    new: tuple[Finding, ...]
    accepted: tuple[Known, ...]
    gone: tuple[Known, ...]
    """Expected and not found in this search."""


def compare(
    findings: Sequence[Finding], baseline: frozenset[Known], expected: frozenset[Known]
) -> Comparison:
    """What is new, what is known, and which expected ones did not show."""
    seen = {Known.of(f): f for f in findings}
    known = baseline | expected
    new = tuple(f for f in findings if Known.of(f) not in known)
    return Comparison(new, tuple(sorted(set(seen) & known)), tuple(sorted(expected - set(seen))))
