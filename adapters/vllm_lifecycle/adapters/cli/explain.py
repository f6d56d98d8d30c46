"""`explain`: what a name of the specification means, read off the machine and the mutants, so that it cannot go stale.

A name may be a property, witness, action, state of a lifecycle, state variable, mutant or catalogue id (P1, PIN, ...); all that
it names is told. An unknown name is answered with near misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli import services
from vllm_lifecycle.adapters.cli.errors import unknown
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.edges import Edge, edges
from vllm_lifecycle.spec.lang.machine import Action, Fairness, Lifecycle, Machine, Property, StateVar, Witness
from vllm_lifecycle.spec.lang.sorts import EnumSort

if TYPE_CHECKING:
    from vllm_lifecycle.spec.mutants import Mutant

_ESTABLISHED = {
    "state": "proved by induction for any number of requests and blocks (`prove`); explored at small scopes (`explore`)",
    "step": "proved for every action and any number of requests and blocks (`prove`); explored at small scopes (`explore`)",
    "progress": "explored at small scopes under the fairness named here (`explore --liveness`)",
}
_FAIRNESS = {
    Fairness.NONE: "none: it may never be taken",
    Fairness.WEAK: "weak: taken when it stays enabled",
    Fairness.STRONG: "strong: taken when it keeps becoming enabled",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing explained: its kind and name, its meaning in a sentence or two, and facts as heading -> lines."""

    kind: str
    name: str
    doc: str
    facts: tuple[tuple[str, tuple[str, ...]], ...] = ()


def entries(name: str) -> list[Entry]:
    """Everything that the name means; UsageProblem with near misses when it means nothing."""
    machine = services.machine()
    found = list(_entries(machine, name))
    if not found:
        raise unknown("name", name, _names(machine), "list all names with `vllm-lifecycle explain`")
    return found


def contents() -> list[Entry]:
    """All names by kind."""
    machine = services.machine()
    lists = (
        ("properties", (p.name for p in machine.properties)),
        ("actions", (a.name for a in machine.actions)),
        ("states", _states(machine)),
        ("variables", (v.name for v in machine.vars)),
        ("witnesses", (w.name for w in machine.witnesses if w.of is None)),
        ("mutants", (m.name for m in services.mutant_rows())),
        ("catalogue ids", _ids(machine)),
    )
    return [Entry("contents", kind, "", ((kind, tuple(names)),)) for kind, names in lists]


def _entries(machine: Machine, name: str) -> Iterator[Entry]:
    for prop in machine.properties:
        if name == prop.name or name in prop.ids:
            yield _property(machine, prop)
    for row in machine.witnesses:
        if name == row.name:
            yield _witness(row)
    for action in machine.actions:
        if name == action.name:
            yield _action(action)
    yield from _state(machine, name)
    for var in machine.vars:
        if name == var.name:
            yield _variable(machine, var)
    for mutant in services.mutant_rows():
        if name == mutant.name:
            yield _mutant(mutant)


def _property(machine: Machine, prop: Property) -> Entry:
    cases = [f"{w.name}: {text.witness(w)}" for w in machine.witnesses if w.of == prop.name]
    fair = [a.name for a in machine.actions if a.fairness is not Fairness.NONE]
    kind = {"state": "safety property", "step": "step property", "progress": "progress property"}[prop.kind]
    return Entry(
        "lemma" if prop.lemma else kind,
        prop.name,
        prop.doc,
        _facts(
            ("formula", [text.claim(prop)]),
            ("catalogue", prop.ids),
            ("established", [_ESTABLISHED[prop.kind]]),
            ("witness", cases),
            ("fair actions", fair if prop.kind == "progress" else ()),
            ("kills", [m.name for m in services.mutant_rows() if prop.name == m.breaks]),
        ),
    )


def _witness(row: Witness) -> Entry:
    of = [row.of] if row.of else []
    return Entry(
        "witness",
        row.name,
        row.doc,
        _facts(("must be found", [text.witness(row)]), ("shows the case of", of)),
    )


def _action(action: Action) -> Entry:
    moves = [
        f"{lifecycle.name}: {e.source.name} -> {e.target.name}"
        for lifecycle, found in _edges()
        for e in found
        if e.action == action.name
    ]
    params = ", ".join(f"{p.name}: {'set of ' if p.is_set else ''}{p.sort}" for p in action.params)
    return Entry(
        "action",
        f"{action.name}({params})",
        action.doc,
        _facts(
            ("taken by", [action.by]),
            ("feature", [action.feature]),
            ("fairness", [_FAIRNESS[action.fairness]]),
            ("requires", [f"{term}   ({why})" if why else term for why, term in text.guards(action)]),
            ("assigns", text.updates(action)),
            ("moves", moves),
            ("behaviour of", [f"{release}: {place}" for release, place in action.sources]),
        ),
    )


def _state(machine: Machine, name: str) -> Iterator[Entry]:
    classes = {v.sort.cls: None for v in machine.vars if isinstance(v.sort, EnumSort)}
    for cls in classes:
        if name not in cls.__members__:
            continue
        member = cls[name]
        mentioned = [p.name for p in machine.properties if _mentions(p.body, member)]
        facts: list[tuple[str, Iterable[str]]] = []
        for lifecycle, found in _edges():
            if member in lifecycle.table:
                here = f"in lifecycle {lifecycle.name}"
                entered = [f"{e.source.name} by {e.action}" for e in found if e.target is member]
                left = [f"{e.target.name} by {e.action}" for e in found if e.source is member]
                facts += [(f"{here}: entered from", entered), (f"{here}: left for", left)]
        facts.append(("spoken of by", mentioned))
        yield Entry("state", f"{cls.__name__}.{name}", (cls.__doc__ or "").strip(), _facts(*facts))


def _variable(machine: Machine, var: StateVar) -> Entry:
    arrow = f"{', '.join(map(str, var.args))} -> " if var.args else ""
    return Entry(
        "ghost variable" if var.ghost else "variable",
        var.name,
        var.doc,
        _facts(
            ("type", [f"{arrow}{var.sort}, {text.value(var.init.value)} at the start"]),
            ("module", [var.module]),
            ("assigned by", [a.name for a in machine.actions if var.name in a.writes]),
            ("spoken of by", [p.name for p in machine.properties if var.name in p.reads]),
        ),
    )


def _mutant(mutant: Mutant) -> Entry:
    return Entry(
        "mutant",
        mutant.name,
        mutant.doc,
        _facts(
            ("must be refuted by", [mutant.breaks]),
            ("changes", [a.name for a in mutant.actions]),
            ("stands for", mutant.corpus),
            ("features", mutant.features),
        ),
    )


@cache
def _edges() -> tuple[tuple[Lifecycle, tuple[Edge, ...]], ...]:
    machine = services.machine()
    return tuple((lifecycle, edges(machine, lifecycle)) for lifecycle in machine.lifecycles)


def _facts(*facts: tuple[str, Iterable[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Facts without the empty ones."""
    kept = ((heading, tuple(lines)) for heading, lines in facts)
    return tuple((heading, lines) for heading, lines in kept if lines)


def _mentions(term: t.Term, member: Enum) -> bool:
    return any(isinstance(n, t.Lit) and n.value is member for n in t.walk(term))


def _states(machine: Machine) -> list[str]:
    return list(
        dict.fromkeys(m.name for v in machine.vars if isinstance(v.sort, EnumSort) for m in v.sort.members)
    )


def _ids(machine: Machine) -> list[str]:
    return list(dict.fromkeys(i for p in machine.properties for i in p.ids))


def _names(machine: Machine) -> Iterator[str]:
    for entry in contents():
        for _, names in entry.facts:
            yield from names
    yield from (w.name for w in machine.witnesses)
