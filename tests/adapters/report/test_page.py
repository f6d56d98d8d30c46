"""The page as a document: it asks for nothing outside, no text of a target becomes markup, and bad places are one line."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from tests.adapters.report.samples import NASTY, SAMPLES, finding, picture, report

from vllm_lifecycle.adapters.cli import forms
from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.cli.run import Format, finish
from vllm_lifecycle.adapters.report import page
from vllm_lifecycle.adapters.report.model import Report, Stage
from vllm_lifecycle.spec.check.verdict import Outcome

VERSIONS = {"vllm-lifecycle": "0.1.0"}
PROVE = ["prove", "a_free_block_is_in_no_table", "--seeds", "1"]


class Document(HTMLParser):
    """Tags with their attributes, and the texts of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._kind: str | None = ""
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._kind = dict(attrs).get("type")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append((self._kind, data))
        elif self.cdata_elem != "style":
            self.words.append(data)


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_page_asks_for_nothing_outside(sample: Report) -> None:
    text = page.html(sample, VERSIONS)
    document = Document(text)
    assert not [
        t for t, _ in document.tags if t in {"link", "img", "iframe", "object", "embed", "base", "form"}
    ]
    for tag, attributes in document.tags:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith("#")
        assert not [a for a in attributes if a.startswith("on")]
    assert not re.search(r"@import|url\((?!#)", text)
    ids = [a["id"] for _, a in document.tags if "id" in a]
    assert len(ids) == len(set(ids))
    links = {a["href"] for t, a in document.tags if t == "a" and a.get("href")}
    assert {link for link in links if link} <= {f"#{i}" for i in ids}


def test_only_the_pages_own_script_may_run() -> None:
    document = Document(page.html(SAMPLES["a finding"], VERSIONS))
    [script] = [text for kind, text in document.scripts if kind is None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [a["content"] for t, a in document.tags if t == "meta" and a.get("http-equiv")]
    assert f"script-src 'sha256-{digest}'" in (policy or "")
    assert "default-src 'none'" in (policy or "")


def test_no_text_of_a_target_becomes_markup() -> None:
    plain, nasty = (Document(page.html(SAMPLES[n], VERSIONS)) for n in ("a finding", "nasty"))
    assert {t for t, _ in nasty.tags} <= {t for t, _ in plain.tags}
    assert len([1 for kind, _ in nasty.scripts if kind is None]) == 1
    [data] = [json.loads(text) for kind, text in nasty.scripts if kind]
    assert data["moments"][0]["requests"][0]["name"] == NASTY
    assert "{{7*7}}" in "".join(nasty.words)
    assert "49" not in "".join(nasty.words)


def test_the_page_says_what_the_report_says() -> None:
    words = " ".join("".join(Document(page.html(SAMPLES["a finding"], VERSIONS, "today")).words).split())
    assert "vllm-lifecycle check vllm" in words
    assert "2 claims: 1 refuted, 1 not established; 1234.6 s" in words
    assert "vllm/v1/core/sched/scheduler.py:2771 _free_request_blocks" in words
    assert "No block is in the free pool while a remote party may still read or write it." in words
    assert "vllm-lifecycle 0.1.0, today" in words


def test_nothing_checked_is_not_green() -> None:
    for name in ("nothing", "an empty section"):
        words = "".join(Document(page.html(SAMPLES[name], VERSIONS)).words)
        assert "not established" in words
        assert "nothing was checked" in words


def test_a_page_is_the_same_in_every_run() -> None:
    sample = report(finding(), finding(60))
    assert page.html(sample, VERSIONS) == page.html(sample, VERSIONS)


def test_a_page_is_written_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "out" / "report.html"
    for _ in range(2):
        assert main([*PROVE, "--html", str(place)]) == 0
    assert forms.MARKS["html"] in place.read_text(encoding="utf-8")[:200]
    assert [p.name for p in place.parent.iterdir()] == ["report.html"]
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == f"written: {place}"
    assert "prove: holds" in out


@pytest.mark.parametrize(
    "place", ["folder", "mine.html", "mine.html/report.html", "x" * 300], ids=lambda p: p[:9]
)
def test_a_place_that_cannot_be_written_is_one_line_before_the_work(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine.html").write_text("mine", encoding="utf-8")
    assert main([*PROVE, "--html", str(tmp_path / place)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("vllm-lifecycle: ")
    assert "internal error" not in err
    assert (tmp_path / "mine.html").read_text(encoding="utf-8") == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "mine.html"]


def test_without_jinja2_the_repair_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vllm_lifecycle.adapters.cli.pages.importlib.util.find_spec", lambda _: None)
    assert main([*PROVE, "--html", str(tmp_path / "report.html")]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "vllm-lifecycle: --html needs jinja2, which is not installed: pip install jinja2\n",
    )


def test_a_page_that_fails_at_the_end_leaves_nothing_half_and_loses_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vllm_lifecycle.adapters.files.os.fsync", full)
    assert main([*PROVE, "--html", str(tmp_path / "report.html")]) == 1
    out, err = capsys.readouterr()
    assert "prove: holds" in out
    assert "No space left on device" in err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_one_search_is_written_in_several_forms_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [f"--write={form}={tmp_path / form}" for form in ("junit", "sarif", "markdown")]
    for _ in range(2):
        assert main([*PROVE, "--format", "github", *wanted, "--html", str(tmp_path / "html")]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["html", "junit", "markdown", "sarif"]
    assert json.loads((tmp_path / "sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--write", "yaml=x"], "FORM=FILE"),
        (["--write", "junit"], "FORM=FILE"),
        (["--write", "junit="], "FORM=FILE"),
        (["--write", "html=x"], "FORM=FILE"),
        (["--write", "junit=x", "--write", "sarif=x"], "a file of its own"),
        (["--write", "junit=mine"], "was not written by vllm-lifecycle"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_write_is_one_line_before_the_work(
    given: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    assert main([*PROVE, *given]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_what_never_happens_is_told_after_the_last_call() -> None:
    never = replace(finding(3), picture=replace(picture(3), lasting=True))
    document = Document(page.html(report(never), VERSIONS))
    words = " ".join("".join(document.words).split())
    assert "length 2 calls" in words
    assert "✗ never" in words
    [data] = [json.loads(text) for kind, text in document.scripts if kind]
    assert [m["title"] for m in data["moments"]] == ["call 1 of 2", "call 2 of 2", "after the last call"]
    assert [m["falls"] for m in data["moments"]] == [False, False, True]


def test_what_repeats_for_ever_is_marked_as_a_whole() -> None:
    loop = replace(finding(4), picture=replace(picture(4), loop=1))
    text = page.html(report(loop), VERSIONS)
    assert "grid-column: 3 / span 3" in text
    assert text.count("✗ for ever") == 1


def test_a_replay_that_holds_marks_nothing() -> None:
    held = replace(finding(2), outcome=Outcome.HOLDS, picture=replace(picture(2), falls=False))
    text = page.html(report(held), VERSIONS)
    assert "shade falls" not in text
    assert "✗ falls" not in text


def test_a_text_that_no_encoding_has_is_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = finding(2, "r\ud800", "\udcff")
    stage = Stage("part", lambda _: [odd])
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    for form in Format:
        wanted = [f"{name}={tmp_path / name}" for name in ("junit", "sarif", "markdown")]
        with pytest.raises(typer.Exit):
            finish("check", [stage], form, details=True, html=str(tmp_path / "html"), write=wanted)
    assert len(list(tmp_path.iterdir())) == 4
    out.seek(0)
    assert out.read().count("_free_request_blocks") > len(Format)
