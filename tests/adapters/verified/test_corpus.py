"""Every sequence that was found to break vLLM's own classes: it breaks the class of its release, and none of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_lifecycle.adapters.corpus.replayed import CLEAN, REFUSED, VERIFIED, play
from vllm_lifecycle.adapters.corpus.runs import rows_of
from vllm_lifecycle.adapters.corpus.sequences import Known, kept
from vllm_lifecycle.adapters.vllm.rerun import rerun

vllm = pytest.importorskip("vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

KNOWN = kept(Path(__file__).resolve().parents[3] / "docs" / "corpus")
HERE = [one for one in KNOWN if one.saved.version == vllm.__version__]
NO_SEQUENCE = {"42571"}
"""Rows that misbehave and have no sequence: no call of the API makes a table hold a block twice."""


def _name(one: Known) -> str:
    return f"{one.saved.version} {one.title}"


@pytest.mark.parametrize("one", HERE, ids=_name)
def test_it_breaks_the_class_that_it_was_found_on(one: Known) -> None:
    assert rerun(one.saved).fell


@pytest.mark.parametrize("target", VERIFIED, ids=lambda target: target.partition(":")[2])
@pytest.mark.parametrize("one", KNOWN, ids=_name)
def test_it_breaks_nothing_of_ours(one: Known, target: str) -> None:
    assert play(target, one.saved).end in (CLEAN, REFUSED)


def test_what_is_refused_needs_a_feature_that_ours_refuses() -> None:
    refused = [one for one in KNOWN if play(VERIFIED[0], one.saved).refused]
    assert all(one.saved.scope.sessions or one.saved.scope.state_space for one in refused)
    assert len(refused) < len(KNOWN) / 10


def test_every_row_that_misbehaves_here_has_its_sequence() -> None:
    release = vllm.__version__
    rows = {row.name for row in rows_of(release) if row.cells[release] == "misbehaves"}
    assert rows - {name for one in HERE for name in one.rows} == NO_SEQUENCE & rows
