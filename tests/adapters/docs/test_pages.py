"""The pages: what stands on them is what the specification says, they are never silently stale, and diagrams are small."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.docs import build, digest, lifecycles, mermaid
from vllm_lifecycle.adapters.docs.evidence import NAME, Evidence, Unreadable, read
from vllm_lifecycle.adapters.docs.mermaid import Arrow, Part, split
from vllm_lifecycle.adapters.docs.view import View
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.profiles import PROFILES
from vllm_lifecycle.statemachine.machines import machine

ROOT = Path(__file__).resolve().parents[3]
COMMITTED = ROOT / "docs/lifecycles"
VIEWS = [View(), *(View(p) for p in PROFILES.values())]
every_view = pytest.mark.parametrize("view", VIEWS, ids=lambda v: v.title)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The committed pages, to be spoilt."""
    return Path(shutil.copytree(COMMITTED, tmp_path / "pages"))


def edited() -> Machine:
    """The specification with one guard of one action left out: a deliberate edit."""
    rows = [replace(a, guards=a.guards[:-1]) if a.name == "preempt_request" else a for a in SYSTEM.actions]
    return replace(SYSTEM, actions=tuple(rows), _index={})


# fresh or stale


def test_the_committed_pages_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["docs", "check", "--out", str(COMMITTED)])
    assert code == 0, capsys.readouterr().out


def test_an_edit_of_the_specification_makes_the_check_fail(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = edited()
    monkeypatch.setattr("vllm_lifecycle.adapters.docs.view.SYSTEM", changed)
    monkeypatch.setattr(build, "current", lambda: digest.digest(changed))
    assert main(["docs", "check", "--out", str(copy)]) == 2
    problems = capsys.readouterr().out.splitlines()
    assert any(NAME in line and "another specification" in line for line in problems)
    named = {Path(line.partition(":")[0]).name for line in problems}
    assert {"actions.md", "properties.md", "request.md"} <= named


def test_an_edit_of_a_sentence_spoils_its_pages_and_not_the_evidence(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = SYSTEM.actions
    changed = replace(SYSTEM, actions=(replace(first, doc="Something else."), *rest), _index={})
    assert digest.digest(changed) == digest.current()
    monkeypatch.setattr("vllm_lifecycle.adapters.docs.view.SYSTEM", changed)
    assert main(["docs", "check", "--out", str(copy)]) == 2
    out = capsys.readouterr().out
    assert "actions.md" in out and NAME not in out


@pytest.mark.parametrize("page", ["request.md", "properties.md", "index.md"])
def test_a_page_that_was_edited_or_lost_is_named(
    page: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / page).write_text((copy / page).read_text(encoding="utf-8") + "More.\n", encoding="utf-8")
    assert main(["docs", "check", "--out", str(copy)]) == 2
    assert f"{page}:" in capsys.readouterr().out
    (copy / page).unlink()
    assert main(["docs", "check", "--out", str(copy)]) == 2
    assert f"{page}: missing" in capsys.readouterr().out


def test_a_status_cannot_be_typed_in_by_hand(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = copy / "properties.md"
    page.write_text(page.read_text(encoding="utf-8").replace("not asked", "holds"), encoding="utf-8")
    assert main(["docs", "check", "--out", str(copy)]) == 2
    assert "properties.md:" in capsys.readouterr().out


def test_a_page_that_is_built_no_more_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "old.md").write_text("old", encoding="utf-8")
    assert main(["docs", "check", "--out", str(copy)]) == 2
    assert "old.md" in capsys.readouterr().out


def test_stale_evidence_shows_no_status(tmp_path: Path) -> None:
    old = read(COMMITTED)
    pages = build.pages(View(), Evidence(spec="0" * 16, proofs=old.proofs, explored=old.explored))
    assert "another specification" in pages["properties.md"]
    assert "**holds**" not in pages["properties.md"]


# what users meet


def test_the_pages_of_a_release_are_built_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    command = "vllm-lifecycle docs build --release 0.32.0 --out build/lifecycles"
    assert main(shlex.split(command)[1:]) == 0
    assert main(["docs", "check", "--out", "build/lifecycles"]) == 0
    text = (tmp_path / "build/lifecycles/request.md").read_text(encoding="utf-8")
    assert "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR" in text
    assert "WAITING_FOR_CHUNK" not in text
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "repair"),
    [
        (["docs", "build", "--release", "9.9.9", "--out", "x"], "choose from"),
        (["docs", "check", "--out", "nowhere"], "docs build"),
        (["docs", "diff", "--from", "0.13.0", "--to", "9.9.9"], "choose from"),
        (["docs", "build", "--out", "taken"], "move it away"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str],
    repair: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/index.md").write_text("mine", encoding="utf-8")
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == "" and repair in err and len(err.splitlines()) == 1
    assert (tmp_path / "taken/index.md").read_text(encoding="utf-8") == "mine"


def test_broken_evidence_is_one_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / NAME).write_text('{"spec": 3}', encoding="utf-8")
    with pytest.raises(Unreadable):
        read(copy)
    for command in ("check", "build"):
        assert main(["docs", command, "--out", str(copy)]) == 1
        assert "docs build --evidence" in capsys.readouterr().err


def test_the_difference_of_two_releases_names_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "diff", "--from", "0.13.0", "--to", "0.32.0"]) == 0
    out = capsys.readouterr().out
    assert "renamed: `WAITING_FOR_FSM` is now `WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR`" in out
    assert "added: `WAITING_FOR_STREAMING_REQ`" in out
    assert "request added: `RUNNING` to `WAITING_FOR_STREAMING_REQ` by `end_turn`" in out
    assert main(["docs", "diff", "--from", "0.32.0", "--to", "0.32.0"]) == 0
    assert capsys.readouterr().out.count("No difference.") == 5


# what stands on the pages


def _diagrams(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    for name, text in pages.items():
        for found in re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL):
            yield name, found.splitlines()


@every_view
def test_no_diagram_is_too_large_to_read(view: View) -> None:
    pages = build.pages(view, read(COMMITTED))
    for name, lines in _diagrams(pages):
        arrows = [line for line in lines if "-->" in line or "---" in line]
        assert len([a for a in arrows if "[*]" not in a]) <= mermaid.MOST, name


@every_view
def test_diagrams_and_tables_have_every_row_once(view: View) -> None:
    for lifecycle in view.lifecycles.values():
        drawn = [
            (a.source, a.target, label)
            for part in lifecycles.parts(view, lifecycle)
            for a in part.arrows
            for label in a.labels
        ]
        rows = [(view.name(r.source), view.name(r.target), r.action) for r in lifecycle.rows]
        assert sorted(drawn) == sorted(rows)


def test_the_diagrams_are_the_machines(view: View = VIEWS[0]) -> None:
    for name, lifecycle in view.lifecycles.items():
        built = {
            (transition.source, transition.dest, trigger)
            for trigger, event in machine(name).events.items()
            for rows in event.transitions.values()
            for transition in rows
        }
        assert {(r.source.name, r.target.name, r.action) for r in lifecycle.rows} == built


@every_view
def test_links_lead_to_headings_that_exist(view: View) -> None:
    pages = build.pages(view, read(COMMITTED))
    anchors = {
        name: {a for line in text.splitlines() if line.startswith("#") for a in [_anchor(line)]}
        for name, text in pages.items()
    }
    for name, text in pages.items():
        for page, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            known = anchors[page or name]
            assert anchor in known, f"{name} links to {page}#{anchor}"
        for page in re.findall(r"\]\(([\w-]+\.md)\)", text):
            assert page in pages, f"{name} links to {page}"


def _anchor(line: str) -> str:
    return line.lstrip("#").strip().lower().replace(" ", "-")


def test_a_property_has_the_status_that_was_recorded() -> None:
    evidence = read(COMMITTED)
    text = (COMMITTED / "properties.md").read_text(encoding="utf-8")
    for name, proof in evidence.proofs.items():
        found = re.search(rf"^### {name}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
        if found:
            assert f"proof: **{proof.outcome}**" in found[1], name
    for prop in SYSTEM.properties:
        if not prop.lemma:
            assert evidence.kills(prop.name), prop.name


def test_the_matrix_says_who_may_free_a_block() -> None:
    holders = read(COMMITTED).holders
    assert holders["dispatched step"] == {"takes": ["dispatch_step"], "lets go": ["receive_output"]}
    assert "abort_request" not in holders["receive transfer"]["lets go"]
    assert "preempt_request" in holders["block table"]["lets go"]
    takers = {a for name, deeds in holders.items() if name != "free pool" for a in deeds["takes"]}
    assert set(holders["free pool"]["lets go"]) <= takers


def test_a_transition_that_cannot_be_taken_is_left_out() -> None:
    never = {tuple(row) for row in read(COMMITTED).never}
    assert ("call", "UPDATING", "BETWEEN_CALLS", "dispatch_step") in never
    text = (COMMITTED / "step.md").read_text(encoding="utf-8")
    assert "UPDATING --> BETWEEN_CALLS : finish_update\n" in text


# parts


def test_a_large_diagram_is_cut_between_its_states() -> None:
    arrows = tuple(Arrow(f"S{i // 3:02}", f"T{i}") for i in range(90))
    parts = list(split([Part("all", arrows)]))
    assert [a for p in parts for a in p.arrows] == list(arrows)
    assert all(len(p.arrows) <= mermaid.MOST for p in parts)
    assert [p.title for p in parts] == ["all (1 of 3)", "all (2 of 3)", "all (3 of 3)"]
    for source in {a.source for a in arrows}:
        assert sum(any(a.source == source for a in p.arrows) for p in parts) == 1


def test_the_digest_sees_a_literal_and_not_the_order_of_a_set() -> None:
    first, *rest = SYSTEM.actions
    changed = replace(
        SYSTEM, actions=(replace(first, guards=(replace(first.guards[0], term=t.TRUE),)), *rest), _index={}
    )
    assert digest.digest(changed) != digest.current()
    assert digest.digest(SYSTEM) == digest.current()
