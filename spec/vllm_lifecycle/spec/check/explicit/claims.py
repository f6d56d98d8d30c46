"""Claims: what is looked for in states and in steps (violations of properties, witnesses), tested many states at once.

A target is a formula that is true where the thing is found. All targets of one kind share a circuit and one bit that says
"any of them", so a state without news costs a few tests. Targets that were found are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vllm_lifecycle.spec.check.explicit.circuit import Circuit
from vllm_lifecycle.spec.check.explicit.formula import FALSE, TRUE
from vllm_lifecycle.spec.check.explicit.layout import WORD, Word
from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Property, Witness


@dataclass(frozen=True, slots=True)
class Target:
    """A named formula to be found; `on_step` when it speaks of a state and its successor."""

    name: str
    node: int
    on_step: bool


def violation(model: Model, prop: Property) -> Target:
    """Where a state or step property is false."""
    node = model.claim(prop.params, (prop.antecedent, t.neg(prop.consequent)))
    return Target(prop.name, node, prop.kind == "step")


def occurrence(model: Model, witness: Witness) -> Target:
    """Where a witness is met."""
    return Target(witness.name, model.claim(witness.params, (witness.term,)), witness.on_step)


class Watch:
    """Looks for targets in words; answers the first place of each new find."""

    def __init__(self, model: Model, targets: Iterable[Target], on_step: bool) -> None:
        self._model = model
        self._on_step = on_step
        self._targets = [g for g in targets if g.on_step == on_step and g.node != FALSE]
        self._compile()

    def _compile(self) -> None:
        formulas = self._model.formulas
        self._circuit: Circuit = self._model.step_circuit() if self._on_step else self._model.state_circuit()
        self._bits = [self._circuit.bit(g.node) for g in self._targets if g.node != TRUE]
        some = formulas.disj(g.node for g in self._targets)
        self._always = some == TRUE
        self._any = self._circuit.bit(some) if FALSE < some and not self._always else None

    def __bool__(self) -> bool:
        return bool(self._targets)

    def look(self, words: list[Word]) -> list[tuple[str, int]]:
        """New finds as (name, index of the first state); the targets found are dropped."""
        if not self._targets or not len(words[0]):
            return []
        extended = self._circuit.extend(words)
        if self._any is not None and not self._always and not _test(extended, self._any).any():
            return []
        found: list[tuple[str, int]] = []
        left: list[Target] = []
        for target in self._targets:
            if target.node == TRUE:
                found.append((target.name, 0))
                continue
            hits = np.flatnonzero(_test(extended, self._circuit.bit(target.node)))
            if len(hits):
                found.append((target.name, int(hits[0])))
            else:
                left.append(target)
        if found:
            self._targets = left
            self._compile()
        return found


def _test(words: list[Word], bit: tuple[int, bool]) -> Word:
    position, positive = bit
    set_ = words[position // WORD] >> np.uint64(position % WORD) & np.uint64(1)
    return set_ == np.uint64(positive)  # type: ignore[return-value]
