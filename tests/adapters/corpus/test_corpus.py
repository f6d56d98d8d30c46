"""Rows, recognisers and the table; no vLLM needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_lifecycle.adapters.corpus import complete, sequences
from vllm_lifecycle.adapters.corpus.complete import Count
from vllm_lifecycle.adapters.corpus.omni_rows import OMNI
from vllm_lifecycle.adapters.corpus.omni_rows import ROWS as OMNI_ROWS
from vllm_lifecycle.adapters.corpus.recognise import Found, after, at, blames, every, has, in_scope, some
from vllm_lifecycle.adapters.corpus.regressions import Outcomes
from vllm_lifecycle.adapters.corpus.replayed import Line, Replayed
from vllm_lifecycle.adapters.corpus.runs import Run, found
from vllm_lifecycle.adapters.corpus.table import NOT_TRIAGED, renewed, table
from vllm_lifecycle.adapters.corpus.triage import TRIAGE, explain
from vllm_lifecycle.adapters.corpus.vllm_rows import RELEASES
from vllm_lifecycle.adapters.corpus.vllm_rows import ROWS as VLLM_ROWS
from vllm_lifecycle.adapters.vllm.events import Abort, Schedule

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "corpus.md"
ABORT_DURING_LOAD: dict[str, Any] = {
    "property": "a_free_block_is_not_touched_by_a_transfer",
    "message": "m",
    "site": "scheduler.py:1 _free_blocks",
    "fault": "scheduler",
    "breach": "",
    "kind": "RECEIVE",
    "scope": {"groups": 1, "drafts": 0},
    "events": [
        {"event": "Add", "rid": "r0", "hold": False, "match": {"span": "block", "between_steps": True}},
        {"event": "Schedule"},
        {"event": "Abort", "rid": "r0"},
    ],
}


def run(*findings: dict[str, Any], target: str = "vllm.v1:Scheduler", version: str = "0.13.0") -> Run:
    data = {"target": target, "version": version, "seconds": 1.0, "findings": findings, "coverage": ["a: b"]}
    return Run.read(json.dumps(data))


def test_recognisers_combine() -> None:
    finding = Found.read(ABORT_DURING_LOAD)
    assert every(after("Abort"), at("_free_blocks"), blames("scheduler"), has("Add", hold=False))(finding)
    assert not some(after("Answer"), has("Add", hold=True), in_scope(drafts=True), in_scope(groups=2))(
        finding
    )


def test_a_finding_counts_for_its_row_only() -> None:
    finding = Found.read(ABORT_DURING_LOAD)
    hits = [row.name for row in (*VLLM_ROWS, *OMNI_ROWS) if row.recognise and _counts(row, finding)]
    assert hits == ["32255"]


def _counts(row: Any, finding: Found) -> bool:
    wanted = {"chunks": False, "handoff": "", "late_acknowledgements": False, "encoder": ""}
    return bool(row.recognise(Found(**{**vars(finding), "scope": {**finding.scope, **wanted}})))


def test_rows_are_told_apart_and_speak_of_known_subjects() -> None:
    names = [row.name for row in (*VLLM_ROWS, *OMNI_ROWS)]
    assert len(names) == len(set(names))
    assert all(set(row.cells) == set(RELEASES) for row in VLLM_ROWS)
    assert all(set(row.cells) == {OMNI} for row in OMNI_ROWS)
    assert all(row.recognise or row.why_not for row in OMNI_ROWS)


def test_the_table_counts_what_was_found() -> None:
    one = run(ABORT_DURING_LOAD)
    assert found("0.13.0", [one])[0] == 1
    text = table([one, run(target="vllm_omni.x:Omni", version="0.16.0")])
    assert "| 32255 | an abort during a load frees its destination at once | misbehaves | 3 events |" in text
    assert f"## {OMNI}" in text


@pytest.mark.parametrize("text", ["{}", "[]", '{"target": 1}', "no JSON"])
def test_what_is_no_exploration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        Run.read(text)


STEP_OF_AN_ABORT: dict[str, Any] = {
    **ABORT_DURING_LOAD,
    "property": "a_free_block_is_not_touched_by_a_step",
    "kind": "",
    "scope": {},
}
UNHEARD_OF: dict[str, Any] = {**ABORT_DURING_LOAD, "property": "something_new", "kind": ""}


def test_a_finding_beyond_the_rows_says_what_it_is_or_that_nobody_looked() -> None:
    explained = explain(Found.read(STEP_OF_AN_ABORT))
    assert explained is not None and explained.of == "45357"
    assert explain(Found.read(UNHEARD_OF)) is None
    text = table([run(STEP_OF_AN_ABORT, UNHEARD_OF)])
    assert f"| {explained.title} (mechanism of 45357) |" in text and text.count(NOT_TRIAGED) == 1
    assert f"| {explained.title} | 45357 | {explained.why} |" in text


def test_triage_speaks_of_known_rows() -> None:
    names = {row.name for row in (*VLLM_ROWS, *OMNI_ROWS)}
    assert {row.of for row in TRIAGE} - {""} <= names
    assert len({row.title for row in TRIAGE}) == len(TRIAGE)


def test_the_table_says_what_became_of_saved_tests() -> None:
    told = [
        Outcomes("0.13.0", {"0.13.0 Scheduler": ("failed",)}),
        Outcomes("0.32.0", {"0.13.0 Scheduler": ("passed",)}),
    ]
    assert [Outcomes.read(o.text()) for o in told] == told
    text = table([run(ABORT_DURING_LOAD)], told)
    assert "0.13.0 Scheduler: 1 of 1 saved tests fail on 0.13.0, where they were found." in text
    assert "| 32255 | 1 | 1 passed | healthy |" in text


def test_counts_are_read_from_the_document_as_they_were_written() -> None:
    found = [
        Count("0.13.0", "Scheduler", "alone", "1 x 3, 1 in flight", 125, 276, 10),
        Count("omni 0.16.0", "OmniARScheduler", "one hand-off", "1 x 3, 1 in flight", 69, 175, 9),
    ]
    assert complete.read(complete.text(found)) == found
    assert complete.pinned(table([run(ABORT_DURING_LOAD)], (), found)) == found
    with pytest.raises(ValueError, match="no counts"):
        complete.read("{}")


def test_the_document_leaves_nothing_untriaged_and_every_saved_test_failed_where_it_was_found() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert NOT_TRIAGED not in text
    ends = re.findall(r"(\d+) of (\d+) saved tests fail on", text)
    assert len(ends) == 7 and all(failed == saved for failed, saved in ends)
    assert complete.pinned(text)


EXPLORED = json.dumps(
    {
        "target": "vllm.v1:Scheduler",
        "version": "0.13.0",
        "seconds": 1.0,
        "findings": [
            {**ABORT_DURING_LOAD, "target": "vllm.v1:Scheduler", "version": "0.13.0", "scope": {"name": "s"}}
            | {"events": [{"event": "Schedule"}, {"event": "Abort", "rid": "r0"}], "steps": [{"call": "x"}]}
        ]
        * 2,
        "coverage": ["a: b"],
    }
)


def test_a_sequence_is_kept_once_and_read_as_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "0.13.0.jsonl").write_text(sequences.lines([EXPLORED]))
    (one,) = sequences.kept(tmp_path)
    assert one.rows == ("32255",) and one.title == "32255: a_free_block_is_not_touched_by_a_transfer"
    assert one.saved.events == (Schedule(), Abort("r0")) and one.saved.version == "0.13.0"
    assert "steps" not in (tmp_path / "0.13.0.jsonl").read_text()
    with pytest.raises(ValueError, match="not a saved finding"):
        sequences.read("{}")


PLAYED = Replayed(
    "0.13.0",
    (
        Line("0.13.0", ("32255",), "", True, ("clean", "clean")),
        Line("0.13.0", ("32255",), "", False, ("clean", "a_claim")),
        Line("0.32.0", (), "a kind", None, ("refused", "clean")),
    ),
)


def test_what_was_played_on_ours_is_told_row_by_row() -> None:
    assert Replayed.read(PLAYED.text()) == PLAYED
    text = table([run(ABORT_DURING_LOAD)], (), (), [PLAYED])
    assert "0.13.0: 3 sequences on two classes: 4 clean, 1 not clean, 1 refused." in text
    assert (
        "| an abort during a load frees its destination at once | 1 of 2 | 2 clean | 1 a_claim, 1 clean |"
        in text
    )
    assert "| | kinds beyond the rows | - | 1 refused | 1 clean |" in text
    assert "| 42571 | one block twice in a free call | - | no sequence | no sequence |" in text
    with pytest.raises(ValueError, match="not the replays"):
        Replayed.read("{}")


def test_a_part_of_the_document_is_told_anew_and_the_rest_stays() -> None:
    counted = [Count("0.13.0", name, "alone", "1 x 3, 1 in flight", 125, 276, 10) for name in ("A", "B")]
    whole = table([run(ABORT_DURING_LOAD)], (), counted, [PLAYED])
    assert renewed(whole, counted, [PLAYED]) == whole
    assert renewed(table([run(ABORT_DURING_LOAD)], (), counted), (), [PLAYED]) == whole
    other = Count("0.13.0", "B", "alone", "1 x 3, 1 in flight", 7, 8, 9)
    assert complete.pinned(renewed(whole, [other], ())) == [counted[0], other]
    with pytest.raises(ValueError, match="has no section"):
        renewed("# Nothing", counted, ())


def test_the_document_says_that_nothing_falls_on_ours() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    told = re.findall(r"sequences on two classes: (.*)\.", text)
    assert len(told) == 2 and all("clean" in line and "not clean" not in line for line in told)
