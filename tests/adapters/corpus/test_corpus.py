"""Rows, recognisers and the table; no vLLM needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_lifecycle.adapters.corpus.omni_rows import OMNI
from vllm_lifecycle.adapters.corpus.omni_rows import ROWS as OMNI_ROWS
from vllm_lifecycle.adapters.corpus.recognise import Found, after, at, blames, every, has, in_scope, some
from vllm_lifecycle.adapters.corpus.table import Run, found, table
from vllm_lifecycle.adapters.corpus.vllm_rows import RELEASES
from vllm_lifecycle.adapters.corpus.vllm_rows import ROWS as VLLM_ROWS

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
