"""Holding a tree against what the project knows: what breaks it, and what is only worth knowing.

Breaks: a status that no profile knows or that is gone, an assignment that no transition of the specification covers, a required
fact that cannot be observed any more, a call of the adapters that does not fit. Everything else that changed is a note.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_lifecycle.adapters.drift import hooks, seams
from vllm_lifecycle.adapters.drift.changes import changes
from vllm_lifecycle.adapters.drift.facts import COMPUTED, Facts
from vllm_lifecycle.adapters.drift.finding import Finding
from vllm_lifecycle.adapters.drift.known import known, meaning
from vllm_lifecycle.adapters.drift.source import NoTree, Tree, parse
from vllm_lifecycle.adapters.vllm.config import SCRIPTED
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.profiles import PROFILES
from vllm_lifecycle.statemachine.tables import tables


@dataclass(frozen=True, slots=True)
class Drift:
    """A tree held against a release."""

    version: str
    against: str
    facts: Facts
    findings: tuple[Finding, ...]

    @property
    def breaking(self) -> tuple[Finding, ...]:
        """Those that break."""
        return tuple(f for f in self.findings if f.breaks)


def compare(tree: Tree, against: str) -> Drift:
    """All findings on a tree; DefinitionError for a release without profile, NoTree for a tree without a scheduler."""
    facts = seams.facts_of(tree)
    if not facts.statuses or seams.SUPPORTED[0] not in facts.classes:
        raise NoTree(f"{tree.root} has no RequestStatus or no Scheduler: name a whole source tree of vLLM v1")
    old = known(against)
    findings = [
        *_statuses(old, facts),
        *_uncovered(facts),
        *_observed(tree),
        *_called(tree),
        *_connector(tree, old),
        *_imported(old, facts),
        *(Finding(False, c.kind, str(c)) for c in changes(old, facts)),
        *_cited(tree, against),
    ]
    return Drift(tree.version, against, facts, tuple(dict.fromkeys(findings)))


def _statuses(old: Facts, new: Facts) -> Iterator[Finding]:
    for name in new.statuses:
        if meaning(name) is None:
            yield Finding(True, "status", f"{name}: no profile of the specification knows it")
    present = {meaning(n) for n in new.statuses}
    for name in old.statuses:
        if meaning(name) not in present:
            yield Finding(True, "status", f"{name}: gone, and no profile has another name for it")


def _uncovered(facts: Facts) -> Iterator[Finding]:
    """Assignments whose target no action of the specification leads to."""
    targets = {row.target for row in tables()["request"].rows}
    for a in facts.assignments:
        if a.target != COMPUTED and meaning(a.target) not in targets:
            yield Finding(
                True, "assignment", f"{a.function} ({a.module}) assigns {a.target}: no transition leads there"
            )


def _observed(tree: Tree) -> Iterator[Finding]:
    """Facts of the correspondence tables, per supported class that the tree has."""
    for name in seams.SUPPORTED:
        cls, request = tree.find(name), tree.find(seams.REQUEST)
        if cls is None or request is None:
            continue
        for row in seams.rows_for(name):
            start = cls if row.of == "scheduler" else request
            answers = [seams.holds(tree, start, way) for way in row.ways]
            looked = " or ".join(f"{row.of}.{w}" for w in row.ways)
            if True not in answers and None in answers:
                yield Finding(
                    False, "seam", f"{cls.node.name}: cannot tell whether {looked} is there ({row.fact})"
                )
            elif True not in answers and row.required:
                yield Finding(
                    True, "seam", f"{cls.node.name}: cannot observe the {row.fact}: {looked} is gone"
                )


def _called(tree: Tree) -> Iterator[Finding]:
    """Calls of the adapters, per supported class that the tree has."""
    for name in seams.SUPPORTED:
        cls = tree.find(name)
        if cls is None:
            continue
        everywhere = [known(r).classes[name] for r in PROFILES if name in known(r).classes]
        for call in seams.calls():
            found = seams.signature(cls, call.method)
            if found is None:
                if all(call.method in methods for methods in everywhere):
                    yield Finding(
                        True, "call", f"{cls.node.name}.{call.method} is gone: the adapters call {call}"
                    )
            elif misfit := call.misfit(found):
                yield Finding(True, "call", f"{cls.node.name}.{call}: {misfit}")


def _imported(old: Facts, new: Facts) -> Iterator[Finding]:
    """Names that the adapters import: needed where every known release of the family has them."""
    family = [
        known(r) for r in PROFILES if ("omni" in r) == any(n.startswith("vllm_omni") for n in old.names)
    ]
    for name in old.names:
        if name not in new.names:
            needed = all(name in facts.names for facts in family)
            yield Finding(needed, "name", f"{name.replace(':', '.')} is gone, which the adapters import")


def _connector(tree: Tree, old: Facts) -> Iterator[Finding]:
    """The connector that the explorer plays, as a subclass of the tree's own."""
    if tree.find(seams.CONNECTOR) is not None:
        found = hooks.overrides(tree, hooks.load(tree, SCRIPTED), old)
        yield from (f for f in found if f.breaks)


def _cited(tree: Tree, against: str) -> Iterator[Finding]:
    """Places that the specification cites for the release and that the tree does not have."""
    family, _, number = against.rpartition("-")
    for action in SYSTEM.actions:
        for release, place in action.sources:
            if release not in (family, number):
                continue
            package = tree.root / ("vllm_omni" if release == family else "vllm")
            for path, names in re.findall(r"([\w/]+\.py): ([^;]*)", place):
                have = _defined(package / path)
                for named in re.findall(r"[A-Za-z_]\w*(?:\.\w+)?", re.sub(r"\(.*?\)", "", names)):
                    if named.rpartition(".")[2] not in have:
                        yield Finding(
                            False, "source", f"{path}: {named} is gone, which `{action.name}` cites"
                        )


def _defined(file: Path) -> frozenset[str]:
    """Names of the functions, classes and members of a file; none when it is not there."""
    if not file.is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(parse(file)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(found)
