"""Findings as files, without vLLM: they survive being written and read, names are stable, foreign files are safe."""

from __future__ import annotations

import ast
import dataclasses
import json
import random
from pathlib import Path

import pytest

from vllm_lifecycle.adapters import files
from vllm_lifecycle.adapters.vllm import Add, Answer, Match, Report, Schedule, Scope, as_test, saved
from vllm_lifecycle.adapters.vllm.baseline import Known, NoBaseline, compare, read, write
from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO
from vllm_lifecycle.adapters.vllm.report import Finding, StepLine
from vllm_lifecycle.adapters.vllm.saving import names, save

SCOPE = Scope("s", matches=(Match("most", True),), connector=True)
EVENTS = (Add("r0", 6, 2, match=Match("most", True)), Schedule(), Report("received", "r0"), Answer(stop="r0"))


def finding(
    claim: str = "a_claim", site: str = "vllm/sched.py:12 schedule", message: str = "It fell."
) -> Finding:
    steps = (StepLine("schedule()", "", ("r0: RUNNING",)),)
    return Finding(claim, message, site, "scheduler", "", "pkg:Class", "0.0", SCOPE, EVENTS, steps)


def test_a_finding_survives_its_json_form() -> None:
    assert saved.load(saved.dump(finding())) == saved.Saved.of(finding())


@pytest.mark.parametrize("scope", PORTFOLIO, ids=lambda s: s.name)
def test_every_scope_survives_its_json_form(scope: Scope) -> None:
    one = dataclasses.replace(finding(), scope=scope)
    assert saved.load(saved.dump(one)).scope == scope


def test_every_kind_of_event_can_be_saved() -> None:
    plain = {"rid": "r0", "prompt": 1, "answer": 1, "forced": True, "everything": True, "kind": "sent"}
    plain |= {"match": Match(), "ready": True}
    for name, cls in saved.EVENTS.items():
        needed = [f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING]
        event = cls(**{n: plain[n] for n in needed})
        assert saved.load(saved.dump(dataclasses.replace(finding(), events=(event,)))).events == (event,), (
            name
        )


def _changed(**values: object) -> str:
    return json.dumps({**json.loads(saved.dump(finding())), **values})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("{}", "does not begin with"),
        ("[]", "does not begin with"),
        (_changed(format="vllm-lifecycle finding 99"), "does not begin with"),
        (_changed(target=3), "target: Expected `str`, got `int`"),
        (_changed(property=None), "property"),
        (_changed(events={}), "events"),
        (_changed(events=[{"event": "Explode"}]), "events[0].event is 'Explode': one of"),
        (_changed(events=[{}]), "events[0].event is None"),
        (_changed(events=[{"event": "Abort"}]), "events[0]: Object missing required field `rid`"),
        (_changed(events=[{"event": "Abort", "rid": "r0", "why": 1}]), "events[0] has no 'why'"),
        (_changed(events=[{"event": "Report", "kind": "lost", "rid": "r0"}]), "events[0].kind"),
        (_changed(events=[{"event": "Add", "rid": "r0", "prompt": 10**12, "answer": 1}]), "larger than"),
        (_changed(scope={"name": "s", "blocks": "many"}), "scope.blocks"),
        (_changed(scope=None), "scope"),
    ],
)
def test_what_is_no_finding_is_one_line(text: str, told: str) -> None:
    with pytest.raises(saved.NotAFinding) as caught:
        saved.load(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_files_never_get_past_the_reader() -> None:
    whole, source = saved.dump(finding()), random.Random(0)
    for _ in range(300):
        at = source.randrange(len(whole))
        damaged = (
            whole[:at]
            + source.choice(["", "}", '"', "1", "null", "[", ","])
            + whole[at + source.randrange(9) :]
        )
        try:
            saved.load(damaged)
        except saved.NotAFinding as why:
            assert "\n" not in str(why)


def test_names_tell_property_and_function_and_do_not_depend_on_the_order() -> None:
    found = [
        finding("b", "x/f.py:20 run"),
        finding("a", "x/f.py:30 <lambda>"),
        finding("b", "x/f.py:3 run"),
        finding("c", ""),
    ]
    there = names(found)
    assert {n: f.site for n, f in there.items()} == {
        "a_in_lambda": "x/f.py:30 <lambda>",
        "b_in_run": "x/f.py:3 run",
        "b_in_run_2": "x/f.py:20 run",
        "c": "",
    }
    assert list(names(reversed(found)).items()) == list(there.items())


def test_the_saved_test_is_python_that_says_the_same() -> None:
    hard = finding(message='It says """ and \\n and é.')
    source = as_test.test_text(hard, "a_claim")
    tree = ast.parse(source)
    assert "\\n and é" in (ast.get_docstring(tree) or "")
    space: dict[str, object] = {}
    exec(compile(tree, "saved", "exec"), space)
    assert (space["TARGET"], space["SCOPE"], space["EVENTS"]) == ("pkg:Class", SCOPE, EVENTS)
    assert "test_a_claim" in space


def test_saving_again_replaces_our_files_and_leaves_others_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    first = save([finding()], tmp_path / "deep" / "er")
    assert sorted(p.name for p in first) == ["a_claim_in_schedule.json", "test_a_claim_in_schedule.py"]
    before = [p.read_bytes() for p in first]
    assert save([finding()], tmp_path / "deep" / "er") == first
    assert [p.read_bytes() for p in first] == before
    save([finding()], tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_place_that_is_taken_stops_everything_before_anything_is_written(tmp_path: Path) -> None:
    taken = tmp_path / "test_a_claim_in_schedule.py"
    taken.write_text("my own test")
    with pytest.raises(files.NotWritten, match="was not written by vllm-lifecycle: move it away"):
        save([finding()], tmp_path)
    assert (taken.read_text(), len(list(tmp_path.iterdir()))) == ("my own test", 1)


def test_a_folder_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(files.NotWritten, match="name another folder"):
        files.check_folder(tmp_path / "file")


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "known.json"
    write(place, [Known("a")])
    before = place.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(files.NotWritten, match="No space left on device"):
        write(place, [Known("b")])
    assert place.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_known_findings_survive_moved_lines(tmp_path: Path) -> None:
    place = tmp_path / "known.json"
    write(place, {Known.of(finding()), Known("older", "x.py", "f", "Add")})
    moved = finding(site="vllm/sched.py:99 schedule", message="It fell elsewhere.")
    other = finding("another_claim")
    result = compare([moved, other], read(place), frozenset({Known("expected", "y.py", "g")}))
    assert result.new == (other,)
    assert [str(k) for k in result.accepted] == ["a_claim at vllm/sched.py schedule in Answer"]
    assert [str(k) for k in result.gone] == ["expected at y.py g"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "--update-baseline writes it"),
        ("x", "no JSON"),
        ("{}", "does not begin with"),
        ('{"format": "vllm-lifecycle known findings 1"}', "Expected `array`"),
        (
            '{"format": "vllm-lifecycle known findings 1", "findings": [{"file": 1}]}',
            "is no list of known findings",
        ),
    ],
)
def test_what_is_no_baseline_is_one_line(text: str | None, told: str, tmp_path: Path) -> None:
    place = tmp_path / "known.json"
    if text is not None:
        place.write_text(text)
    with pytest.raises(NoBaseline) as caught:
        read(place)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
