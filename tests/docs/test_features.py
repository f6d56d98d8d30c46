"""The feature table is what the recorded runs say, covers every feature, and no run has an unexplained difference."""

from __future__ import annotations

from tests.differential.features import FEATURES, PAGE, page, recorded


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded())


def test_every_feature_was_run_on_both_releases_without_an_unexplained_difference() -> None:
    records = {str(r["release"]): r["groups"] for r in recorded()}
    assert set(records) == {"0.13.0", "0.32.0"}
    for groups in records.values():
        assert all(name in groups for _, names in FEATURES.values() for name in names)
        assert not any(group["unexplained"] for group in groups.values())
