"""Pieces of code in the documents stand in the file that they say they are from, and links lead to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SNIPPETS = [
    (page, source, body)
    for page in PAGES
    for source, body in re.findall(
        r"^```python from=(\S+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
    )
]


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) > 5


@pytest.mark.parametrize(("page", "source", "body"), SNIPPETS, ids=lambda value: getattr(value, "name", ""))
def test_a_snippet_stands_in_its_source(page: Path, source: str, body: str) -> None:
    assert body in (ROOT / source).read_text(encoding="utf-8"), (
        f"{page.name} quotes what {source} does not say"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
