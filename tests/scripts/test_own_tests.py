"""`scripts/vllm-own-tests`: its reasons, its table, and the document that it fills."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from own_tests.reasons import REASONS, reason_for  # noqa: E402
from own_tests.table import NONE_YET, enter, read, table, unexplained  # noqa: E402

DOCUMENT = ROOT / "docs" / "own-tests.md"
ROW = re.compile(r"^\| (?P<why>[^|]+) \| (?P<count>\d+) \| (?P<tests>`[^|]+`) \|$", re.MULTILINE)


def sections() -> dict[str, str]:
    _, *found = DOCUMENT.read_text(encoding="utf-8").split("\n## ")
    return {part.partition("\n")[0]: part for part in found}


@pytest.mark.parametrize("release", ["0.13.0", "0.32.0"])
def test_the_document_gives_the_reasons_that_there_are(release: str) -> None:
    section = sections()[release]
    told = {row["why"]: int(row["count"]) for row in ROW.finditer(section)}
    assert told, "a run always has tests that fail on purpose"
    assert NONE_YET not in section
    assert set(told) <= {reason.why for reason in REASONS if release in reason.releases}
    total = re.search(r"^\| all \|.* (\d+) \|$", section, re.MULTILINE)
    assert total is not None
    assert sum(told.values()) == int(total[1])


@pytest.mark.parametrize("release", ["0.13.0", "0.32.0"])
def test_every_reason_is_needed(release: str) -> None:
    told = {row["why"] for row in ROW.finditer(sections()[release])}
    assert {reason.why for reason in REASONS if release in reason.releases} <= told


def test_a_bracket_in_a_pattern_is_a_bracket() -> None:
    assert reason_for("0.32.0", "tests/v1/core/test_scheduler.py::test_schedule_prefills_gating[True]")
    assert not reason_for("0.32.0", "tests/v1/core/test_scheduler.py::test_schedule_prefills_gating[False]")
    assert not reason_for("0.13.0", "tests/v1/core/test_scheduler.py::test_schedule_prefills_gating[True]")


def test_what_fails_with_ours_only_and_has_no_reason_is_said(tmp_path: Path) -> None:
    results = {}
    for name, last in (("stock", "passed"), ("ours", "failed")):
        notes = [("a.py::test_here", last), ("a.py::test_nowhere", "failed")]
        lines = [json.dumps({"test": test, "outcome": outcome, "reason": "x"}) for test, outcome in notes]
        file = tmp_path / name
        file.write_text("\n".join(lines))
        results[name] = read(file)
    text, missing = table("0.32.0", results["stock"], results["ours"], "0.32.0")
    assert missing == 1
    assert f"| {NONE_YET} | 1 | `test_here` |" in text
    assert unexplained(results["stock"], results["ours"], "0.32.0") == ["a.py::test_here: x"]


def test_a_section_takes_the_place_of_the_one_before() -> None:
    once = enter("", "0.32.0", "## 0.32.0\n\none\n")
    both = enter(once, "0.13.0", "## 0.13.0\n\nother\n")
    again = enter(both, "0.32.0", "## 0.32.0\n\ntwo\n")
    assert "one" not in again.partition("\n## ")[2]
    assert again.index("## 0.13.0") < again.index("## 0.32.0")
    assert enter(again, "0.32.0", "## 0.32.0\n\ntwo\n") == again
