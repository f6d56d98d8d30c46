"""Tables and machines say the same as the specification, and as what really happens when it is explored."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cache

import pytest
from tests.agreement.sizes import domain

from vllm_lifecycle.spec.check.explicit.search import explore
from vllm_lifecycle.spec.check.explicit.taken import taken_edges
from vllm_lifecycle.spec.lang.edges import Edge, edges
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Flight, Status
from vllm_lifecycle.statemachine.machines import Tracked, machine
from vllm_lifecycle.statemachine.tables import IllegalMove, Table, tables

S = Status
NEVER_TAKEN = {("request", S.WAITING_FOR_GRAMMAR, S.WAITING_FOR_TRANSFER_FREE)}
"""Listed pairs that no step takes: a request that waits for its grammar has no blocks to send.

Reading edges off the actions over-approximates (it knows nothing of blocks), so that the list must have them.
"""

every_table = pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.name)


def test_there_is_a_table_for_each_lifecycle() -> None:
    assert list(tables()) == ["request", "receive", "send", "handoff", "step", "call"]


@every_table
def test_the_rows_are_the_edges_of_the_actions_and_the_successor_list(table: Table) -> None:
    lifecycle = next(lc for lc in SYSTEM.lifecycles if lc.name == table.name)
    assert table.successors == lifecycle.table
    assert set(table.rows) == {e for e in edges(SYSTEM, lifecycle) if e.source in table.successors}
    listed = {(a, b) for a, following in lifecycle.successors for b in following}
    assert {(row.source, row.target) for row in table.rows} == listed


@every_table
def test_the_machine_has_the_rows_and_nothing_else(table: Table) -> None:
    built = machine(table.name)
    found = {
        (source, event.name, transition.dest)
        for event in built.events.values()
        for source, transitions in event.transitions.items()
        for transition in transitions
    }
    assert found == {(row.source.name, row.action, row.target.name) for row in table.rows}
    assert built.initial == table.initial.name
    assert {*built.states} == {state.name for state in table.states}


@every_table
def test_machine_and_lookup_accept_the_same_moves(table: Table) -> None:
    for source in table.states:
        for action in dict.fromkeys(row.action for row in table.rows):
            for target in table.states:
                assert accepts(table, source, action, target) == (
                    target in table.moves.get((source, action), ())
                )


def accepts(table: Table, source: Enum, action: str, target: Enum) -> bool:
    """What the machine says; a refused move changes nothing."""
    tracked = Tracked(table.name)
    tracked.state = source
    try:
        tracked.move(action, target)
    except IllegalMove as refusal:
        assert tracked.state is source
        with pytest.raises(IllegalMove) as other:
            table.check(source, action, target)
        assert str(other.value) == str(refusal)
        return False
    assert tracked.state is target
    table.check(source, action, target)
    return True


@cache
def seen() -> dict[str, frozenset[Edge]]:
    """The edges that a search of everything that lifecycles depend on takes: one request, one block, two steps."""
    whole = SYSTEM.slice({lifecycle.var for lifecycle in SYSTEM.lifecycles})
    found = explore(whole, replace(domain(1, 1, 2, 1), choices={}), [], [])
    assert found.complete and found.states > 10_000
    return {lifecycle.name: taken_edges(found, lifecycle) for lifecycle in whole.lifecycles}


@every_table
def test_what_happens_is_in_the_table_and_every_listed_pair_happens(table: Table) -> None:
    taken = seen()[table.name]
    assert taken <= set(table.rows)
    listed = {(table.name, a, b) for a, following in table.successors.items() for b in following}
    assert listed - {(table.name, e.source, e.target) for e in taken} <= NEVER_TAKEN


def test_a_refusal_says_what_is_allowed() -> None:
    step = Tracked("step")
    step.move("begin_pass", Flight.BUILDING)
    with pytest.raises(
        IllegalMove, match="receive_output cannot take BUILDING to ANSWERED: from there only dispatch_step"
    ):
        step.move("receive_output", Flight.ANSWERED)
    with pytest.raises(IllegalMove, match="unknown lifecycle block: choose from request, receive"):
        Tracked("block")
