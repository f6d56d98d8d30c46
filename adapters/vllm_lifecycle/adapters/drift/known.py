"""The releases that the project knows: recorded facts of each, one file per profile, and which of them a tree is held against."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from vllm_lifecycle.adapters.drift.facts import Facts
from vllm_lifecycle.adapters.drift.seams import facts_of
from vllm_lifecycle.adapters.drift.source import Tree
from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.profiles import PROFILES, profile

FOLDER = Path(__file__).parent / "releases"
FAMILY = "vllm_omni"
"""Package whose presence makes a tree one of vllm-omni."""


@cache
def known(release: str) -> Facts:
    """The recorded facts of a release with a profile; DefinitionError when it has none, or none were recorded."""
    path = FOLDER / f"{profile(release).release}.json"
    if not path.is_file():
        raise DefinitionError(f"nothing is recorded of {release}: `scripts/drift-table record` does it")
    return msgspec.json.decode(path.read_bytes(), type=Facts)


def record(release: str, tree: Tree) -> Path:
    """Write down the facts of a release that has a profile."""
    path = FOLDER / f"{profile(release).release}.json"
    FOLDER.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(facts_of(tree)), indent=1)
    path.write_bytes(text + b"\n")
    return path


def nearest(tree: Tree) -> str:
    """The release to hold a tree against: of its family the newest not newer, else the oldest; unversioned, the newest."""
    omni = tree.module(FAMILY) is not None
    family = [r for r in PROFILES if r.startswith("omni") == omni]
    if not tree.version:
        return family[-1]
    older = [r for r in family if order(r) <= order(tree.version)]
    return max(older, key=order) if older else min(family, key=order)


def order(release: str) -> tuple[int, ...]:
    """A release for comparing."""
    return tuple(int(part) for part in release.rpartition("-")[2].split("."))


def meaning(name: str) -> Status | None:
    """The state that some release calls `name`; None when no profile knows it."""
    for row in PROFILES.values():
        try:
            return row.status_named(name)
        except DefinitionError:
            continue
    return None


def first_with(name: str) -> str:
    """The oldest profile that has a status of that name."""
    return next(r for r, p in PROFILES.items() if name in {p.status_name(s) for s in Status})
