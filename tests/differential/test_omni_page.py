"""The recorded runs against vllm-omni's own scheduler: the page is fresh, nothing is unexplained, and all is reached together."""

from __future__ import annotations

from tests.differential.omni_page import PAGE, page, recorded


def test_the_page_is_made_from_the_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded()), "run python -m tests.differential.omni_page"


def test_nothing_is_unexplained_in_enough_steps() -> None:
    groups = recorded()["groups"].values()
    assert sum(group["steps"] for group in groups) >= 5000
    assert not any(group["unexplained"] for group in groups)


def test_hand_offs_chunks_aborts_and_sessions_come_together() -> None:
    wanted = {"handed off", "chunks", "aborted in flight", "further inputs to idle sessions"}
    groups = [group for group in recorded()["groups"].values() if wanted <= set(group["reached"])]
    assert sum(group["steps"] for group in groups) >= 5000
