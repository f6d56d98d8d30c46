"""Rejections: what only the whole definition can show to be wrong, with a message that is the repair.

Checked for each action: integers assigned to an integer variable only, and no ghost read by what an implementation would
compute. Checked for the machine: every enum state of a lifecycle can be entered, no state is entered that the successor
list does not allow (and none is listed that no action takes), every property has its witness, and the quantifier
alternations have no cycle, so that the proof obligations stay decidable.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.alternation import check_alternations
from vllm_lifecycle.spec.lang.edges import edges
from vllm_lifecycle.spec.lang.machine import Action, Lifecycle, Machine, StateVar
from vllm_lifecycle.spec.lang.sorts import DefinitionError


def check_updates(action: Action, variables: Mapping[str, StateVar]) -> None:
    """Reject an action whose guards or non-ghost updates read a ghost."""
    ghosts = {name for name, var in variables.items() if var.ghost}
    for guard in action.guards:
        seen = t.reads(guard.term) & ghosts
        if seen:
            raise DefinitionError(
                f"a guard reads the ghost {min(seen)}: a scheduler cannot know it; guard on ordinary state instead"
            )
    for name, function in action.updates:
        seen = t.reads(function.body) & ghosts
        if seen and name not in ghosts:
            raise DefinitionError(
                f"{name} is computed from the ghost {min(seen)}: make {name} a ghost, or read ordinary state"
            )


def check_machine(machine: Machine) -> None:
    """Reject what the whole shows; see the module's head."""
    if not machine.actions:
        raise DefinitionError(f"{machine.name} has no action: define one with @spec.action")
    for lifecycle in machine.lifecycles:
        _check_lifecycle(machine, lifecycle)
    witnessed = {w.of for w in machine.witnesses}
    for prop in machine.properties:
        if prop.antecedent != t.TRUE and prop.name not in witnessed:
            raise DefinitionError(f"{prop.name} has no witness: return when(interesting case).then(claim)")
    check_alternations(machine)


def _check_lifecycle(machine: Machine, lifecycle: Lifecycle) -> None:
    table = lifecycle.table
    found = edges(machine, lifecycle)
    start = machine.var(lifecycle.var).init.value
    reachable = {start}
    while True:
        more = reachable | {e.target for e in found if e.source in reachable}
        if more == reachable:
            break
        reachable = more
    for state in table:
        if state not in reachable:
            raise DefinitionError(
                f"lifecycle {lifecycle.name}: no action can bring it to {state.name}: add the action, or remove the state"
            )
    for edge in found:
        if edge.source in reachable and edge.target not in table.get(edge.source, frozenset()):
            raise DefinitionError(
                f"lifecycle {lifecycle.name}: {edge.action} takes {edge.source.name} to {edge.target.name}, which the "
                f"successor list does not allow: guard the action, or list {edge.target.name} after {edge.source.name}"
            )
    taken = {(e.source, e.target) for e in found}
    for state, following in table.items():
        for target in following:
            if (state, target) not in taken:
                raise DefinitionError(
                    f"lifecycle {lifecycle.name}: {state.name} -> {target.name} is listed, but no action takes it"
                )
