"""What becomes of findings: verdicts, saved files, baselines. Without vLLM."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tests.adapters.vllm.test_saving import finding

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.cli.findings import Keeping, prepare, verdicts
from vllm_lifecycle.adapters.vllm.baseline import Known, read, write
from vllm_lifecycle.adapters.vllm.explore import Exploration
from vllm_lifecycle.adapters.vllm.search import Coverage
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict, worst

COVERAGE = (
    Coverage("s", states=3, transitions=5, cut_by="time"),
    Coverage("other", states=2, transitions=2, complete=True),
)
FOUND = Exploration("pkg:Class", "0.0", (finding(), finding("another_claim")), COVERAGE)


def judged(found: Exploration = FOUND, **keeping: object) -> list[Verdict]:
    return list(verdicts(found, prepare(Keeping(**keeping))))  # type: ignore[arg-type]


def test_without_known_findings_each_is_a_refutation_and_clean_scopes_answer_for_themselves() -> None:
    told = [(v.claim, v.outcome, v.scope) for v in judged()]
    assert told == [
        ("a_claim", Outcome.REFUTED, "s"),
        ("another_claim", Outcome.REFUTED, "s"),
        ("every property", Outcome.HOLDS, "other"),
    ]


def test_saved_findings_name_their_files(tmp_path: Path) -> None:
    first = judged(save=str(tmp_path / "out"))[0]
    assert first.reason.endswith(f"; saved as {tmp_path}/out/a_claim_in_schedule.json")
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_a_search_is_not_lost_when_its_findings_cannot_be_saved(tmp_path: Path) -> None:
    kept = prepare(Keeping(save=str(tmp_path)))
    (tmp_path / "a_claim_in_schedule.json").write_text("mine")
    told = list(verdicts(FOUND, kept))
    assert [v.claim for v in told][-1] == "every finding is kept"
    assert "was not written by vllm-lifecycle" in told[-1].reason
    assert "saved as" not in told[0].reason


def test_a_baseline_lets_known_findings_pass_and_fails_on_new_ones(tmp_path: Path) -> None:
    place = tmp_path / "known.json"
    [all_known] = judged(baseline=str(place), update=True)
    assert all_known.outcome is Outcome.HOLDS
    assert all_known.assumptions == (
        "known: a_claim at vllm/sched.py schedule in Answer",
        "known: another_claim at vllm/sched.py schedule in Answer",
    )
    more = dataclasses.replace(FOUND, findings=(*FOUND.findings, finding("a_third")))
    told = judged(more, baseline=str(place))
    assert [(v.claim, v.outcome) for v in told] == [
        ("a_third", Outcome.REFUTED),
        ("nothing_new_falls_in_this_search", Outcome.REFUTED),
    ]


def test_updating_a_baseline_adds_and_never_forgets(tmp_path: Path) -> None:
    place = tmp_path / "known.json"
    write(place, [Known("older", "x.py", "f", "Add")])
    judged(baseline=str(place), update=True)
    assert {k.property for k in read(place)} == {"older", "a_claim", "another_claim"}
    before = place.read_bytes()
    judged(baseline=str(place), update=True)
    assert place.read_bytes() == before


def test_expected_findings_that_did_not_show_are_told_and_fail_nothing(tmp_path: Path) -> None:
    place = tmp_path / "expected.json"
    write(place, [Known("fixed_by_now", "x.py", "f", "Add"), *(Known.of(f) for f in FOUND.findings)])
    [told] = judged(expect=str(place))
    assert told.outcome is Outcome.HOLDS
    assert "expected and no longer found in this search: fixed_by_now at x.py f in Add" in told.assumptions


def test_a_scope_that_was_not_searched_leaves_it_open(tmp_path: Path) -> None:
    partly = dataclasses.replace(FOUND, coverage=(*COVERAGE, Coverage("third", cut_by="not built: no")))
    [told] = judged(partly, baseline=str(tmp_path / "known.json"), update=True)
    assert (told.outcome, told.reason) == (Outcome.NOT_ESTABLISHED, "not searched: third: not built: no")
    assert worst([told]) is Outcome.NOT_ESTABLISHED


@pytest.mark.parametrize(
    ("keeping", "told"),
    [
        ({"update": True}, "--baseline known.json"),
        ({"baseline": "no/such.json"}, "--update-baseline writes it"),
        ({"expect": "no/such.json"}, "there is no no/such.json"),
        ({"save": "taken/deeper"}, "name another folder"),
        ({"baseline": "taken", "update": True}, "was not written by vllm-lifecycle"),
    ],
)
def test_what_cannot_be_kept_is_said_before_the_search(
    keeping: dict[str, object], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text(json.dumps({}))
    with pytest.raises(UsageProblem) as problem:
        prepare(Keeping(**keeping))  # type: ignore[arg-type]
    assert told in str(problem.value)
