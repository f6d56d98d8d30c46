"""Transition tables, one per lifecycle, generated from the specification: what each object may become, and by which action.

A table is total in its states and says nothing else: a row that is absent is illegal. The rows are the edges read off the
actions that are also in the lifecycle's own successor list (sealing the specification has compared the two). Actions that
leave an object where it is have no row. `Table.check` is a dict look-up for hot paths; `machines` builds a `transitions`
machine from the same rows. Rejected: one row per pair of states (the trigger would be lost), and writing the rows down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property

from vllm_lifecycle.spec.lang.edges import Edge, edges
from vllm_lifecycle.spec.lang.machine import Lifecycle
from vllm_lifecycle.spec.lifecycles.system import SYSTEM


class IllegalMove(ValueError):
    """An object of a lifecycle was moved where its table does not lead; the message says what is allowed."""


@dataclass(frozen=True)
class Table:
    """The lifecycle of one kind of object as rows `source, action -> target`, in order of the actions."""

    name: str
    initial: Enum
    successors: Mapping[Enum, frozenset[Enum]]
    rows: tuple[Edge, ...]
    doc: str

    @property
    def states(self) -> tuple[Enum, ...]:
        """The states, in the order of the successor list."""
        return tuple(self.successors)

    @cached_property
    def moves(self) -> dict[tuple[Enum, str], frozenset[Enum]]:
        """What an action may make of an object in a state."""
        found: dict[tuple[Enum, str], set[Enum]] = {}
        for row in self.rows:
            found.setdefault((row.source, row.action), set()).add(row.target)
        return {key: frozenset(targets) for key, targets in found.items()}

    def check(self, source: Enum, action: str, target: Enum) -> None:
        """Raise IllegalMove unless the action may take an object from `source` to `target`."""
        if target not in self.moves.get((source, action), ()):
            raise self.refusal(source, action, target)

    def refusal(self, source: Enum, action: str, target: Enum | None = None) -> IllegalMove:
        """The exception for a move that is not in the table."""
        allowed = ", ".join(f"{r.action} -> {r.target.name}" for r in self.rows if r.source is source)
        goal = f" to {target.name}" if target is not None else ""
        return IllegalMove(
            f"{self.name}: {action} cannot take {source.name}{goal}: from there only {allowed or 'nothing'}"
        )


def table_of(lifecycle: Lifecycle) -> Table:
    """The table of one lifecycle of the specification."""
    successors = lifecycle.table
    found = edges(SYSTEM, lifecycle)
    rows = tuple(edge for edge in found if edge.target in successors.get(edge.source, ()))
    initial = SYSTEM.var(lifecycle.var).init.value
    assert isinstance(initial, Enum)
    return Table(lifecycle.name, initial, successors, rows, lifecycle.doc)


@cache
def tables() -> dict[str, Table]:
    """All tables by lifecycle name: request, receive, send, handoff, step, call."""
    return {lifecycle.name: table_of(lifecycle) for lifecycle in SYSTEM.lifecycles}
