"""The feature table is what the recorded runs say, covers every feature, and no run has an unexplained difference."""

from __future__ import annotations

from tests.differential.features import FEATURES, PAGE, exercising, page, reached, recorded


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded())


def test_every_feature_was_run_on_both_releases_and_nothing_is_unexplained() -> None:
    records = {str(r["release"]): r["groups"] for r in recorded()}
    assert set(records) == {"0.13.0", "0.32.0"}
    for release, groups in records.items():
        for _, names, _ in FEATURES.values():
            assert set(exercising(names, groups)) <= set(groups), release
    found = {
        (r, name) for r, groups in records.items() for name, group in groups.items() if group["unexplained"]
    }
    assert found == set()


def test_the_runs_reached_what_each_feature_is_about() -> None:
    for r in recorded():
        for number, (_, names, wanted) in FEATURES.items():
            counts = reached(r["groups"], names, wanted)
            assert all(counts.values()), (r["release"], number, counts)


def test_the_runs_were_long_enough() -> None:
    for r in recorded():
        for name, group in r["groups"].items():
            assert group["steps"] >= (2_000 if name.endswith("-ahead") else 10_000), (r["release"], name)
