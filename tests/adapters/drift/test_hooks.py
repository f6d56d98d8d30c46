"""A user's subclass: each way in which an override stops fitting the class below it, and overrides that still fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.drift.small_tree import write

from vllm_lifecycle.adapters.cli.main import main
from vllm_lifecycle.adapters.drift.finding import Finding
from vllm_lifecycle.adapters.drift.hooks import load, overrides
from vllm_lifecycle.adapters.drift.seams import facts_of
from vllm_lifecycle.adapters.drift.source import find_tree

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
MINE = """
from vllm.v1.core.sched.scheduler import Scheduler

class MyScheduler(Scheduler):
    def __init__(self, config):
        super().__init__(config)
        self.seen = 0

    def schedule(self, throttle_prefills=False):
        self.seen += len(self.waiting)
        return super().schedule(throttle_prefills)

    def _victims(self):
        return sorted(super()._victims())

    def finish_requests(self, request_ids, finished_status):
        super().finish_requests(request_ids, finished_status)
        return []
"""
Edit = tuple[str, str, str]


def findings(folder: Path, source: str, *edits: Edit) -> list[Finding]:
    """On a subclass of the small tree's scheduler, written for the tree as it was, held against the tree as edited."""
    before = find_tree(str(write(folder / "before")))
    after = find_tree(str(write(folder / "after", *edits)))
    mine = folder / "mine.py"
    mine.write_text(source, encoding="utf-8")
    return list(overrides(after, load(after, f"{mine}:MyScheduler"), facts_of(before)))


def test_a_subclass_of_an_unchanged_class_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, MINE) == []


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            (SCHEDULER, "_victims", "_choose_victims"),
            "MyScheduler._victims: its base is gone, so nothing calls it",
        ),
        ((SCHEDULER, "_victims", "_choose_victims"), "calls super()._victims(), which is gone"),
        (
            (SCHEDULER, "throttle_prefills=False", "throttle_prefills=False, hurry=False"),
            "yours has no hurry",
        ),
        (
            (SCHEDULER, "def schedule(self, throttle_prefills=False)", "def schedule(self)"),
            "it takes 0 arguments",
        ),
        (
            (SCHEDULER, "        return []\n\n    def reset", "\n    def reset"),
            "the base returns nothing, was a value",
        ),
        ((SCHEDULER, "self.waiting", "self.queued"), "reads self.waiting: neither it nor Scheduler has that"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_override_that_no_longer_fits_breaks(edit: Edit, text: str, tmp_path: Path) -> None:
    found = [f.text for f in findings(tmp_path, MINE, edit) if f.breaks]
    assert any(text in line for line in found), found


def test_a_changed_body_is_a_note(tmp_path: Path) -> None:
    edit = (SCHEDULER, "return self._victims()", "return list(self._victims())")
    assert [(f.breaks, f.text) for f in findings(tmp_path, MINE, edit)] == [
        (False, "MyScheduler.schedule: the body of the base changed; read it again")
    ]


def test_a_comment_or_a_docstring_changes_nothing(tmp_path: Path) -> None:
    edit = (
        SCHEDULER,
        "    def _victims(self):\n",
        '    def _victims(self):\n        """Whom to preempt."""\n        # None.\n',
    )
    assert findings(tmp_path, MINE, edit) == []


def test_an_override_that_takes_anything_still_fits(tmp_path: Path) -> None:
    source = MINE.replace(
        "def schedule(self, throttle_prefills=False)", "def schedule(self, *args, **kwargs)"
    ).replace("super().schedule(throttle_prefills)", "super().schedule(*args, **kwargs)")
    edit = (SCHEDULER, "throttle_prefills=False", "throttle_prefills=False, hurry=False")
    assert not [f for f in findings(tmp_path, source, edit) if f.breaks]


def test_a_method_that_the_base_came_to_ask_for_breaks(tmp_path: Path) -> None:
    asks = (
        SCHEDULER,
        "    def _victims(self):",
        "    @abstractmethod\n    def pause(self): ...\n\n    def _victims(self):",
    )
    assert "MyScheduler lacks pause, which Scheduler asks for" in [
        f.text for f in findings(tmp_path / "no", MINE, asks) if f.breaks
    ]
    mine = MINE + "\n    def pause(self):\n        return None\n"
    assert not [f for f in findings(tmp_path / "yes", mine, asks) if f.breaks]


def test_results_that_are_passed_on_have_the_shape_of_the_base(tmp_path: Path) -> None:
    source = MINE.replace(
        "        super().finish_requests(request_ids, finished_status)\n        return []\n",
        "        return super().finish_requests(request_ids, finished_status)\n",
    )
    edit = (SCHEDULER, "        return []\n\n    def reset", "        return [], {}\n\n    def reset")
    assert [f for f in findings(tmp_path / "own", MINE, edit) if f.breaks]
    assert not [f for f in findings(tmp_path / "passed", source, edit) if f.breaks]


def test_of_several_attempts_one_has_to_fit(tmp_path: Path) -> None:
    tried = MINE.replace(
        "        return super().schedule(throttle_prefills)\n",
        "        try:\n            return super().schedule(throttle_prefills)\n"
        "        except TypeError:\n            return super().schedule()\n",
    )
    gone = (SCHEDULER, "def schedule(self, throttle_prefills=False)", "def schedule(self)")
    more = (
        SCHEDULER,
        "def schedule(self, throttle_prefills=False)",
        "def schedule(self, throttle_prefills, hurry)",
    )
    assert not [f for f in findings(tmp_path / "gone", tried, gone) if "calls super()" in f.text]
    assert [f for f in findings(tmp_path / "more", tried, more) if "calls super()" in f.text]


def test_the_command_reads_a_class_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "tree")
    mine = tmp_path / "mine.py"
    mine.write_text(MINE.replace("_victims", "_preempt_request"), encoding="utf-8")
    assert (
        main(["drift", str(tmp_path / "tree"), "--class", f"{mine}:MyScheduler", "--against", "0.16.0"]) == 2
    )
    assert "MyScheduler._preempt_request: its base is gone" in capsys.readouterr().out


def test_a_class_without_a_base_in_vllm_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "tree")
    mine = tmp_path / "mine.py"
    mine.write_text("class MyScheduler:\n    pass\n", encoding="utf-8")
    assert main(["drift", str(tmp_path / "tree"), "--class", f"{mine}:MyScheduler"]) == 1
    assert "name a subclass" in capsys.readouterr().err
