"""One `transitions` machine per lifecycle, built from its table; many objects share it.

Triggers are the specification's action names. Some actions may lead to one of several states (a stopped request is freed at
once or waits for a transfer), so a move names its target: the machine's condition on each transition is that it is the one
asked for, and whatever has no transition raises `IllegalMove` and changes nothing. For monitors, diagrams and docs; a hot
path uses `Table.check` over the same rows. Rejected: a subclass per lifecycle with named callbacks (a second place for rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

from transitions import EventData, Machine, MachineError

from vllm_lifecycle.statemachine.tables import IllegalMove, Table, tables


class Tracked:
    """One object of a lifecycle; `move` follows what happened to it.

    The machine does not know its objects: it keeps none alive, and binds no methods to them.
    """

    def __init__(self, lifecycle: str) -> None:
        self.table = _table(lifecycle)
        self.state: Enum = self.table.initial

    def move(self, action: str, target: Enum) -> None:
        """The action took the object to `target`; IllegalMove where the table has no such row."""
        source = self.state
        event = machine(self.table.name).events.get(action)
        try:
            moved = event is not None and event.trigger(self, target=target)
        except MachineError:
            moved = False
        if not moved:
            raise self.table.refusal(source, action, target)


def _asked_for(event: EventData) -> bool:
    """The transition leads where the caller says that the object went."""
    assert event.transition is not None
    return bool(event.kwargs["target"].name == event.transition.dest)


def transitions_of(table: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table in the words of `transitions`."""
    for row in table.rows:
        yield {"trigger": row.action, "source": row.source, "dest": row.target, "conditions": _asked_for}


@cache
def machine(lifecycle: str) -> Machine:
    """The machine of a lifecycle, shared by its objects; IllegalMove for an unknown lifecycle."""
    table = _table(lifecycle)
    return Machine(
        model=None,
        states=list(table.states),
        initial=table.initial,
        transitions=list(transitions_of(table)),
        auto_transitions=False,
        send_event=True,
        name=lifecycle,
    )


def _table(lifecycle: str) -> Table:
    if lifecycle not in tables():
        raise IllegalMove(f"unknown lifecycle {lifecycle}: choose from {', '.join(tables())}")
    return tables()[lifecycle]
