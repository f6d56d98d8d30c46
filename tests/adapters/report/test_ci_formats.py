"""JUnit, SARIF, GitHub and Markdown: valid by their schemas, never green when something is not established, safe to print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Tree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.report.samples import CLAIM, HOLDS, NASTY, OPEN, REFUTED, SAMPLES, finding, report

from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.report import github, places
from vllm_lifecycle.adapters.report.junit import junit
from vllm_lifecycle.adapters.report.markdown import markdown
from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.adapters.report.sarif import FINGERPRINT, sarif
from vllm_lifecycle.spec.check.verdict import Outcome

SCHEMAS = Path(__file__).parent / "schemas"
every_sample = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
verdicts = st.sampled_from([HOLDS, REFUTED, OPEN, finding()])
reports = st.lists(st.lists(verdicts, max_size=3), max_size=3).map(
    lambda parts: Report("check", [Section(f"part {n}", list(part)) for n, part in enumerate(parts)])
)


@pytest.fixture(scope="module")
def valid_sarif() -> Any:
    """A function that raises where a log breaks the standard's schema."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema: install the extra `dev`")
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate


@pytest.fixture(scope="module")
def valid_junit() -> Any:
    """A function that raises where a text breaks the schema."""
    etree = pytest.importorskip("lxml.etree", reason="lxml: install the extra `dev`")
    schema = etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd")))
    return lambda text: schema.assertValid(etree.fromstring(text.encode()))


@every_sample
def test_junit_is_valid_by_its_schema(sample: Report, valid_junit: Any) -> None:
    valid_junit(junit(sample))


@every_sample
def test_sarif_is_valid_by_its_schema(sample: Report, valid_sarif: Any) -> None:
    valid_sarif(json.loads(sarif(sample, "0.1.0")))


def test_the_schemas_reject_what_is_wrong(valid_sarif: Any, valid_junit: Any) -> None:
    log = json.loads(sarif(SAMPLES["refuted"], "0.1.0"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(Exception, match="fatal"):
        valid_sarif(log)
    with pytest.raises(Exception, match="testcase"):
        valid_junit(junit(SAMPLES["refuted"]).replace("testcase name=", "testcase call="))


def _tests(sample: Report) -> dict[str, str]:
    """Name -> the tag inside of each test."""
    root = Tree.fromstring(junit(sample))
    return {
        t.attrib["name"]: next((e.tag for e in t if e.tag != "system-out"), "") for t in root.iter("testcase")
    }


def test_in_junit_refuted_is_a_failure_and_not_established_an_error() -> None:
    assert _tests(report(HOLDS, REFUTED, OPEN)) == {
        "a_free_block_is_in_no_table [any number]": "",
        f"{CLAIM} [2x2]": "failure",
        "the_engine_never_dies [any number]": "error",
    }
    root = Tree.fromstring(junit(report(HOLDS, REFUTED, OPEN)))
    assert [root.attrib[n] for n in ("tests", "failures", "errors")] == ["3", "1", "1"]
    [failure] = root.iter("failure")
    assert "3. abort_request(r=r0)" in (failure.text or "")


def test_junit_tests_of_one_name_are_told_apart() -> None:
    assert len(_tests(report(finding(), finding(site="vllm/other.py:3 other")))) == 2


@given(reports)
def test_no_form_is_green_unless_everything_holds(sample: Report) -> None:
    holds = sample.outcome is Outcome.HOLDS
    root = Tree.fromstring(junit(sample))
    assert (root.attrib["failures"] == root.attrib["errors"] == "0") is holds
    assert not list(root.iter("skipped"))
    assert sum(1 for _ in root.iter("testcase")) == int(root.attrib["tests"])
    run = json.loads(sarif(sample, "0"))["runs"][0]
    assert (not run["results"]) is holds
    assert run["invocations"][0]["exitCode"] == sample.exit_code
    assert (github.commands(sample).count("\n") == 0) is holds
    assert ("### " not in markdown(sample)) is holds


def test_a_sarif_rule_for_each_property_and_a_result_for_what_does_not_hold() -> None:
    run = json.loads(sarif(report(HOLDS, REFUTED, finding(), OPEN), "0.1.0"))["runs"][0]
    rules = [r["id"] for r in run["tool"]["driver"]["rules"]]
    assert rules == [HOLDS.claim, CLAIM, OPEN.claim]
    assert (
        "No block is in the free pool while a remote party"
        in run["tool"]["driver"]["rules"][1]["help"]["text"]
    )
    found = {(r["ruleId"], r["kind"], r["level"]) for r in run["results"]}
    assert found == {(CLAIM, "fail", "error"), (OPEN.claim, "open", "none")}
    assert all(rules[r["ruleIndex"]] == r["ruleId"] for r in run["results"])
    assert run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "warning"


def test_sarif_locations_are_the_upstream_line_or_that_of_the_specification(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found, proved = json.loads(sarif(report(finding(), replace(REFUTED, claim=HOLDS.claim)), "0"))["runs"][0][
        "results"
    ]
    if found["ruleId"] != CLAIM:
        found, proved = proved, found
    upstream, defined = (r["locations"][0]["physicalLocation"] for r in (found, proved))
    assert upstream["artifactLocation"] == {"uri": "vllm/v1/core/sched/scheduler.py", "uriBaseId": "PACKAGES"}
    assert upstream["region"]["startLine"] == 2771
    assert defined["artifactLocation"]["uri"].endswith("spec/properties/custody.py")
    line = places.defined(HOLDS.claim).line
    assert defined["region"]["startLine"] == line > 1


def test_a_file_of_the_checkout_is_named_from_its_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").touch()
    monkeypatch.chdir(tmp_path)
    place = places.place(finding(site="mine.py:7 schedule"))
    assert (place.path, place.line, place.here, place.function) == ("mine.py", 7, True, "schedule")
    assert github.commands(report(finding(site="mine.py:7 schedule"))).startswith(
        "::error file=mine.py,line=7,title="
    )


def _fingerprints(sample: Report) -> set[str]:
    return {
        r["partialFingerprints"][FINGERPRINT] for r in json.loads(sarif(sample, "0"))["runs"][0]["results"]
    }


def test_fingerprints_are_the_same_in_every_run() -> None:
    moved = finding(9, site="vllm/v1/core/sched/scheduler.py:99 _free_request_blocks")
    later = replace(OPEN, engine="induction/z3 5.0", reason="another time-out", numbers={"seconds": 3})
    assert _fingerprints(report(finding(), OPEN)) == _fingerprints(report(later, moved))


def test_fingerprints_tell_findings_apart() -> None:
    here = finding(site="vllm/v1/core/sched/scheduler.py:99 _free_request_blocks")
    elsewhere = finding(site="vllm/v1/core/sched/scheduler.py:99 schedule")
    assert len(_fingerprints(report(finding(), here, elsewhere, REFUTED, OPEN))) == 5


def _commands(text: str) -> Iterator[str]:
    """What a runner that reads every line takes for commands."""
    return (line for line in re.split(r"\r\n|\r|\n", text) if line.lstrip().startswith("::"))


def test_no_text_of_a_target_is_a_command_of_its_own() -> None:
    text = github.commands(SAMPLES["nasty"])
    lines = re.split(r"\r\n|\r|\n", text)
    assert (
        [line.partition(" ")[0] for line in lines]
        == ["::error", "::notice"]
        == [c.partition(" ")[0] for c in _commands(text)]
    )


@given(st.text())
def test_an_annotation_is_one_line_and_reads_back(text: str) -> None:
    [line, _] = github.commands(report(replace(OPEN, reason=text or "x"))).split("\n")
    body = line.split("::", 2)[2]
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        body = body.replace(code, character)
    assert body == (text or "x")


@given(st.text())
def test_text_is_plain_in_markdown(text: str) -> None:
    for line in markdown(report(replace(OPEN, reason=text))).splitlines():
        assert not re.search(r"(?<!\\)<(?!/?(details|summary)\b)", line)
        assert not re.search(r"@\w", line)


def test_a_code_fence_cannot_be_closed_from_inside() -> None:
    text = markdown(report(finding(1, "``` \n~~~~ ````")))
    assert text.count("`````") == 2


def test_the_step_summary_is_added_to_and_cut_where_it_would_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["prove", "a_free_block_is_in_no_table", "--seeds", "1", "--format", "github"]) == 0
    assert summary.read_text(encoding="utf-8").startswith("before\n## ✅ `vllm-lifecycle prove`: holds\n")
    assert capsys.readouterr().out.startswith("::notice title=vllm-lifecycle prove::holds: 1 holds")
    many = report(*[replace(OPEN, reason="long " * 200)] * 2000)
    assert len(github.summary(many).encode()) < github.LARGEST + 200
    assert "Cut here" in github.summary(many)


def test_a_step_summary_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert main(["prove", "a_free_block_is_in_no_table", "--seeds", "1", "--format", "github"]) == 1
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("vllm-lifecycle: cannot add to the step summary")
    )


@pytest.mark.parametrize("form", ["junit", "sarif", "github", "json", "markdown"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["prove", "a_free_block_is_in_no_table", "--seeds", "1"], 0),
        (["explore", "--scope", "2x2", "--max-states", "50"], 3),
        (["mutants", "abort_frees_receiving_blocks"], 0),
    ],
    ids=["prove", "explore", "mutants"],
)
def test_every_command_prints_every_form(
    form: str,
    command: list[str],
    code: int,
    capsys: pytest.CaptureFixture[str],
    valid_sarif: Any,
    valid_junit: Any,
) -> None:
    assert main([*command, "--format", form]) == code
    out = capsys.readouterr().out
    match form:
        case "junit":
            valid_junit(out.strip())
        case "sarif":
            valid_sarif(json.loads(out))
        case "json":
            assert json.loads(out)["exit_code"] == code
        case "github":
            assert all(line.startswith("::") for line in out.splitlines())
        case _:
            assert out.startswith("## ")


def test_nothing_of_the_nasty_text_is_lost_but_what_xml_cannot_hold() -> None:
    [message] = [e.attrib["message"] for e in Tree.fromstring(junit(SAMPLES["nasty"])).iter("failure")]
    assert NASTY.replace("\x00", "\ufffd").replace("\x1b", "\ufffd") in message
