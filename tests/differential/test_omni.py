"""A short version of the runs against vllm-omni's own AR scheduler; the long one is `python -m tests.differential.omni`."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm_omni", reason="only the environment of vllm-omni has it")

from tests.differential import omni
from tests.differential.run import run_group

from vllm_lifecycle.adapters.vllm.config import load_class

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    "group",
    [
        "mixed",
        "loads",
        "hand-off end aborts",
        "hand-off prompt mixed",
        "hand-off token loads",
        "chunks aborts",
        "chunks and hand-off prompt loads",
        "sessions and chunks and hand-off end aborts",
    ],
)
def test_nothing_is_unexplained(group: str) -> None:
    ours, mended = load_class(omni.OURS), load_class(omni.MENDED)
    report = run_group(omni.OmniClasses(ours, ours, mended, mended), group, 80, 1)
    assert report.failure is None, str(report.failure)
    assert bool(report.met["handed off"]) is ("hand-off" in group)
    assert bool(report.met["chunks"]) is ("chunks" in group)
    assert bool(report.met["further inputs to idle sessions"]) is ("sessions" in group)


@pytest.mark.parametrize("group", ["hand-off end aborts", "chunks mixed"])
def test_the_original_as_it_is_falls_out_of_step(group: str) -> None:
    ours, original = load_class(omni.OURS), load_class(omni.ORIGINAL)
    report = run_group(omni.OmniClasses(ours, ours, original, original), group, 200, 1)
    assert report.failure is not None
