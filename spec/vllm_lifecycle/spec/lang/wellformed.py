"""Rejections: what makes a definition ill-formed, with a message that is the repair.

Checked for each definition: it can start, hold, be taken, or fail at all; every parameter has a use; no ghost is read by what
an implementation would compute. Checked for the machine: every state of a lifecycle can be entered, none is entered that
the successor list does not allow (and none is listed that no action takes), every property has its witness, and the
quantifier alternations have no cycle, so that the proof obligations stay decidable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.alternation import check_alternations
from vllm_lifecycle.spec.lang.edges import edges
from vllm_lifecycle.spec.lang.machine import Action, Lifecycle, Machine, Param, Property, StateVar
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort, Sort, UninterpretedSort, compatible
from vllm_lifecycle.spec.lang.stutter import allows_stuttering


def check_variable(name: str, sort: Sort, init: t.Term, consts: Mapping[str, t.Const]) -> None:
    """Reject a state variable that cannot hold its values, or cannot start."""
    if isinstance(sort, UninterpretedSort):
        raise DefinitionError(
            f"{name} cannot hold an individual: declare a relation, with {sort} as one more argument"
        )
    check_range(sort, consts)
    if not isinstance(init, t.Lit) or not compatible(init.sort, sort):
        raise DefinitionError(
            f"{name} holds {sort}, but starts as {_written(init)}: give an initial value of that sort"
        )
    if isinstance(sort, IntSort) and isinstance(init.value, int):
        high = sort.high if isinstance(sort.high, int) else consts[sort.high].sort.low
        if not sort.low <= init.value <= high:
            raise DefinitionError(f"{name} starts as {init.value}, outside {sort}: start within the range")


def _written(term: t.Term) -> str:
    return str(term.value) if isinstance(term, t.Lit) else "an expression"


def check_range(sort: Sort, consts: Mapping[str, t.Const]) -> None:
    """Reject an integer sort that is empty, or whose upper end is not declared."""
    if not isinstance(sort, IntSort):
        return
    if isinstance(sort.high, str):
        if sort.high not in consts:
            raise DefinitionError(
                f"unknown constant {sort.high}: declare it with spec.const before its first use"
            )
    elif sort.high < sort.low:
        raise DefinitionError(f"{sort} is empty: write IntSort(low, high) with low <= high")


def check_parameters(
    params: Iterable[Param], consts: Mapping[str, t.Const], terms: Iterable[t.Term], *, sets: bool = True
) -> None:
    """Reject parameters without use or range, and sets where only an action may choose one."""
    used: set[str] = set()
    for term in terms:
        used |= {v.name for v in t.free_vars(term)}
        used |= {n.set_name for n in t.walk(term) if isinstance(n, t.InSet)}
    for param in params:
        check_range(param.sort, consts)
        if param.is_set and not sets:
            raise DefinitionError(
                f"{param.name} is a set: only an action chooses sets; speak of their members instead"
            )
        if param.name not in used:
            raise DefinitionError(f"parameter {param.name} is never used: leave it out")


def check_property(prop: Property) -> None:
    """Reject a claim that says nothing on its face."""
    if prop.antecedent == t.FALSE:
        raise DefinitionError(
            "the antecedent is never true: the property says nothing; name a case that can be"
        )
    if prop.body == t.TRUE:
        raise DefinitionError("the claim is always true on its face: say something that could fail")
    if prop.kind == "step" and not allows_stuttering(prop.body):
        raise DefinitionError(
            "the claim fails (or might) when a step changes nothing that it reads: name what changes, when(s.old.x != s.x, ...)"
        )


def check_successors(table: Mapping[Enum, frozenset[Enum]], states: type[Enum]) -> None:
    """Reject a successor list with foreign states, or with a state that has no row."""
    for state, following in table.items():
        for other in (state, *following):
            if not isinstance(other, states):
                raise DefinitionError(
                    f"unknown state {other}: {states.__name__} has {', '.join(m.name for m in states)}"
                )
        for other in following:
            if other not in table:
                raise DefinitionError(
                    f"{other.name} has no row: list its successors, `{other.name}: set()` if none"
                )


def check_updates(action: Action, variables: Mapping[str, StateVar]) -> None:
    """Reject an action that can never be taken, or whose guards or non-ghost updates read a ghost."""
    if action.guard == t.FALSE:
        raise DefinitionError(
            "the guards contradict each other on their face: the action can never be taken; drop one"
        )
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
