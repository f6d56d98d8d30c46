"""What the pages speak of: the whole specification, or what one release has of it, in that release's words.

A release takes features away and renames states; states that only other releases have are left out, and those that no
release has as a status (an id nobody uses, a finished request whose blocks are still shipped) are kept and marked as ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs.mermaid import Arrow
from vllm_lifecycle.adapters.docs.moves import Row
from vllm_lifecycle.spec.lang.edges import Edge
from vllm_lifecycle.spec.lang.machine import Action, Machine
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.mutants import MUTANTS, Mutant
from vllm_lifecycle.spec.profiles import PROFILES, Profile
from vllm_lifecycle.statemachine.tables import Table, tables

OURS = frozenset.intersection(*(p.missing for p in PROFILES.values()))
"""States of the specification that no release keeps as a status."""


@dataclass(frozen=True)
class Lifecycle:
    """One lifecycle as a view shows it."""

    name: str
    initial: Enum
    states: tuple[Enum, ...]
    rows: tuple[Edge, ...]
    doc: str


@dataclass(frozen=True)
class View:
    """The specification, or with a profile what a release has of it."""

    profile: Profile | None = None
    never: frozenset[Row] = frozenset()
    """Rows of the tables that were proved never to be taken."""

    @property
    def title(self) -> str:
        """What it is a view of."""
        if self.profile is None:
            return "the whole specification"
        return f"{self.profile.package} {self.profile.release.rpartition('-')[2]}"

    @cached_property
    def machine(self) -> Machine:
        """The machine with the features of the release."""
        return self.profile.machine(SYSTEM) if self.profile else SYSTEM

    @cached_property
    def actions(self) -> dict[str, Action]:
        """Its actions by name."""
        return {a.name: a for a in self.machine.actions}

    def has(self, state: Enum) -> bool:
        """Whether the state can be spoken of: not one that only other releases have."""
        return (
            self.profile is None
            or not isinstance(state, Status)
            or state in OURS
            or self.profile.status_name(state) is not None
        )

    def name(self, state: Enum) -> str:
        """The state in the release's words."""
        if self.profile is not None and isinstance(state, Status):
            return self.profile.status_name(state) or state.name
        return state.name

    def words(self, text: str) -> str:
        """A text about the specification in the release's words: its names of states, and no others in a set of states."""
        for status in Status if self.profile else ():
            if not self.has(status):
                text = re.sub(rf"(?<=[{{ ]){status.name}, |, {status.name}(?=[,}}])", "", text)
            elif self.name(status) != status.name:
                text = re.sub(rf"\b{status.name}\b", self.name(status), text)
        return text

    @cached_property
    def lifecycles(self) -> dict[str, Lifecycle]:
        """Its lifecycles by name; states that cannot be reached with its features are left out."""
        return {name: self._lifecycle(table) for name, table in tables().items()}

    def _lifecycle(self, table: Table) -> Lifecycle:
        rows = [
            r
            for r in table.rows
            if r.action in self.actions
            and self.has(r.source)
            and self.has(r.target)
            and (table.name, r.source.name, r.target.name, r.action) not in self.never
        ]
        reached = {table.initial}
        while more := {r.target for r in rows if r.source in reached} - reached:
            reached |= more
        return Lifecycle(
            table.name,
            table.initial,
            tuple(s for s in table.states if s in reached),
            tuple(r for r in rows if r.source in reached),
            table.doc,
        )

    def arrows(self, lifecycle: Lifecycle) -> Iterator[Arrow]:
        """Its edges, one arrow for each pair of states with all actions that take it, in order of the states."""
        for source in lifecycle.states:
            for target in lifecycle.states:
                labels = tuple(r.action for r in lifecycle.rows if r.source is source and r.target is target)
                if labels:
                    yield Arrow(self.name(source), self.name(target), labels)

    def link(self, action: str) -> str:
        """A link to an action on its page, or its name where the release does not have it."""
        return md.link(action, "actions.md") if action in self.actions else md.code(action)

    def moves(self, action: str) -> Iterator[tuple[Lifecycle, Edge]]:
        """What an action does to the objects of all lifecycles."""
        for lifecycle in self.lifecycles.values():
            yield from ((lifecycle, r) for r in lifecycle.rows if r.action == action)

    def sources(self, action: Action) -> tuple[tuple[str, str], ...]:
        """(release, place) that the action's behaviour is cited from.

        All of them, or for a release its own one; a release that is not cited itself takes the newest one before it.
        """
        if self.profile is None:
            return action.sources
        cited = dict(action.sources)
        family, _, number = self.profile.release.rpartition("-")
        before = [k for k in cited if _order(k) and _order(k) <= _order(number)]
        key = family if family in cited else max(before, key=_order, default="")
        return ((key, cited[key]),) if key else ()

    @property
    def defects(self) -> dict[str, list[Mutant]]:
        """Known defects of the release that are variants of the specification, by catalogue id."""
        found: dict[str, list[Mutant]] = {}
        for defect in self.profile.defects if self.profile else ():
            rows = [m for m in MUTANTS.values() if defect in m.corpus]
            if rows:
                found[defect] = rows
        return found


def _order(release: str) -> tuple[int, ...]:
    """A release number for comparing; nothing for a name that is none."""
    parts = release.split(".")
    return tuple(map(int, parts)) if all(p.isdigit() for p in parts) else ()
