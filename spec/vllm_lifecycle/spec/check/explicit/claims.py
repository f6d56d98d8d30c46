"""Claims: what is looked for in states and in steps (violations of properties, witnesses), tested many states at once.

A target is a formula that is true where the thing is found. All targets of one kind share a network and one plane that says
"any of them", so states without news cost one look. Targets that were found are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vllm_lifecycle.spec.check.explicit.formula import FALSE, Transfer
from vllm_lifecycle.spec.check.explicit.ground import Instance
from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.check.explicit.planes import Flags, members, valid
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Param, Property, Witness


@dataclass(frozen=True, slots=True)
class Target:
    """A named formula to be found, and the claim over `params` that is false exactly where it is found."""

    name: str
    node: int
    on_step: bool
    params: tuple[Param, ...]
    claim: t.Term
    wanted: bool


def violation(model: Model, prop: Property) -> Target:
    """Where a state or step property is false."""
    node = model.claim(prop.params, (prop.antecedent, t.neg(prop.consequent)))
    return Target(prop.name, node, prop.kind == "step", prop.params, prop.body, False)


def occurrence(model: Model, witness: Witness) -> Target:
    """Where a witness is met."""
    node = model.claim(witness.params, (witness.term,))
    return Target(witness.name, node, witness.on_step, witness.params, t.neg(witness.term), True)


def steps_of_interest(model: Model, targets: Iterable[Target]) -> Flags:
    """The rows whose steps can be a find: for the others, what the row leaves alone and what it assigns rules it out."""
    nodes = [g.node for g in targets if g.on_step and g.node != FALSE]
    answers: dict[int, bool] = {}
    flags = np.zeros(len(model.rows), bool)
    for number, row in enumerate(model.rows):
        key = id(row.instance)
        if key not in answers:
            answers[key] = any(_may_find(model, row.instance, node) for node in nodes)
        flags[number] = answers[key]
    return flags


def _may_find(model: Model, instance: Instance, node: int) -> bool:
    formulas, shift = model.formulas, model.ground.free
    changed = {change.cell: change for change in instance.changes}
    same = {cell + shift: cell for cell in range(model.ground.count) if cell not in changed}
    guard = model.transfer(instance.guard)
    known = formulas.known(guard)
    for cell, change in changed.items():
        if len(change.cases) == 1:
            known[cell + shift] = model.ground.mask(cell, next(iter(change.cases)))
    here = Transfer(formulas, formulas, same)(node)
    return formulas.tidy(formulas.conj((guard, formulas.assume(here, known)))) != FALSE


CHUNK = 1 << 15


class Watch:
    """Looks for targets in words; answers the first place of each new find."""

    def __init__(self, model: Model, targets: Iterable[Target], on_step: bool) -> None:
        self._model = model
        self._on_step = on_step
        self._targets = [g for g in targets if g.on_step == on_step and g.node != FALSE]
        self._compile()

    def _compile(self) -> None:
        some = self._model.formulas.disj(g.node for g in self._targets)
        self._network = self._model.step_network() if self._on_step else self._model.state_network()
        self._planes = np.array([self._network.plane(g.node) for g in self._targets], np.intp)
        self._any = self._network.plane(some)

    def __bool__(self) -> bool:
        return bool(self._targets)

    @property
    def nbytes(self) -> int:
        """Bytes held by planes."""
        return self._network.nbytes

    def look(self, words: list[Word]) -> list[tuple[str, int]]:
        """New finds as (name, index of the first state); the targets found are dropped."""
        count = len(words[0])
        if not self._targets or not count:
            return []
        found: list[tuple[str, int]] = []
        for low in range(0, count, CHUNK):
            part = [w[low : low + CHUNK] for w in words]
            found += [(name, at + low) for name, at in self._look(part)]
        return found

    def _look(self, words: list[Word]) -> list[tuple[str, int]]:
        if not self._targets:
            return []
        count = len(words[0])
        real = valid(count)
        planes = self._network.evaluate(words)
        if not (planes[self._any] & real).any():
            return []
        which, states = members(planes.take(self._planes, axis=0) & real, count)
        first = {w: int(s) for w, s in zip(which[::-1].tolist(), states[::-1].tolist(), strict=True)}
        found = [(self._targets[i].name, first[i]) for i in sorted(first)]
        self._targets = [g for i, g in enumerate(self._targets) if i not in first]
        self._compile()
        return found
