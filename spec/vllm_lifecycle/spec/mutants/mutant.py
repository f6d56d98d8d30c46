"""Mutants: each known defect as a variant of the specification that a named property must refute.

A mutant changes one or a few actions: it runs the original definition, leaves out some labelled guards, and assigns again
what the defect gets wrong. Ghosts are never touched, so the truth stays the truth. A property that no mutant kills says
nothing; a mutant that no property kills shows a hole in the properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vllm_lifecycle.spec.lang.machine import Action, Fairness, Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import spec

Change = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """One defect: `actions` replace those of the same name; `breaks` is the property that must be refuted.

    `corpus` are the ids of the public defects it stands for; `features` what a scope needs to show it; `sizes` a
    small scope that shows it (requests, blocks, steps), with `constants` where the usual values do not do.
    """

    name: str
    breaks: str
    corpus: tuple[str, ...]
    actions: tuple[Action, ...]
    features: tuple[str, ...]
    sizes: tuple[int, int, int]
    constants: Mapping[str, int]
    doc: str

    def machine(self) -> Machine:
        """The whole specification with the defect in it."""
        changed = {a.name: a for a in self.actions}
        return replace(SYSTEM, actions=tuple(changed.get(a.name, a) for a in SYSTEM.actions), _index={})


MUTANTS: dict[str, Mutant] = {}
"""All mutants by name, in order of definition."""


def mutant(
    *changes: str,
    breaks: str,
    corpus: Iterable[str] = (),
    drop: Iterable[str] = (),
    features: Iterable[str] = (),
    sizes: tuple[int, int, int] = (2, 2, 2),
    constants: Mapping[str, int] | None = None,
    unfair: bool = False,
) -> Callable[[Change], Change]:
    """Register a mutant: the function runs after each of the actions named, and may assign again (see `Spec.vary`).

    `drop` names guards (by label) left out where an action has them; `features` adds to those of the changed actions
    and `core`; `unfair` takes the changed actions' fairness away.
    """

    def decorate(change: Change) -> Change:
        name = change.__name__
        if name in MUTANTS:
            raise DefinitionError(f"mutant {name} is defined twice: give one of them another name")
        SYSTEM.claim(breaks)
        labels = set(drop)
        rows = []
        for action in changes:
            own = {g.label for g in SYSTEM.action(action).guards}
            row = spec.vary(action, change, drop=labels & own)
            rows.append(replace(row, fairness=Fairness.NONE) if unfair else row)
        unused = labels - {g.label for action in changes for g in SYSTEM.action(action).guards}
        if unused:
            raise DefinitionError(f"{name}: no changed action has a guard labelled {min(unused)!r}")
        needed = dict.fromkeys(("core", *(r.feature for r in rows), *features))
        doc = " ".join((change.__doc__ or "").split())
        MUTANTS[name] = Mutant(
            name, breaks, tuple(corpus), tuple(rows), tuple(needed), sizes, constants or {}, doc
        )
        return change

    return decorate
