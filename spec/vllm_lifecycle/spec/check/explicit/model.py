"""The compiled model: a machine over a domain as packed states and rows; the one place where the parts meet.

Order of work: ground the instances, find the values that cells can take, lay out fields for those, build rows. Formulas live
in two arenas: the first over all values of each cell (it serves every variant of the machine), the second over possible
values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vllm_lifecycle.spec.check.explicit.expand import Expander
from vllm_lifecycle.spec.check.explicit.formula import Formulas, Transfer
from vllm_lifecycle.spec.check.explicit.ground import BOOLEANS, Ground
from vllm_lifecycle.spec.check.explicit.layout import WORD, Field, Layout, Word
from vllm_lifecycle.spec.check.explicit.planes import Network, Outputs
from vllm_lifecycle.spec.check.explicit.rows import Row, RowBuilder
from vllm_lifecycle.spec.check.explicit.values import possible_values
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Machine, Param

State = tuple[int, ...]


class Model:
    """A machine over a domain, compiled; raises DefinitionError when the domain lacks a size or constant."""

    def __init__(self, machine: Machine, domain: ev.Domain) -> None:
        self.machine = machine
        self.domain = domain
        self.ground = Ground(machine, domain)
        instances = [i for action in machine.actions for i in self.ground.instances(action)]
        sets = possible_values(self.ground, instances)
        width = self.ground.free - self.ground.count
        self.formulas = Formulas(sets + [BOOLEANS] * width + sets)
        self.transfer = Transfer(self.ground.formulas, self.formulas)
        self.layout = Layout(machine, self.ground, sets)
        network = self.state_network()
        outputs = Outputs(network)
        builder = RowBuilder(self.transfer, self.layout, network, outputs)
        rows: list[Row] = [row for instance in instances for row in builder.rows(instance)]
        self.expander = Expander(rows, self.layout, network, outputs)

    @property
    def rows(self) -> list[Row]:
        """Rows by row number."""
        return self.expander.rows

    def initial(self) -> list[Word]:
        """The packed initial state, as words of length one."""
        packed = self.layout.encode(ev.initial(self.machine, self.domain))
        return [np.array([w], np.uint64) for w in packed]

    def claim(self, params: tuple[Param, ...], parts: Iterable[t.Term]) -> int:
        """The formula `for some parameter values all parts hold`."""
        ground = self.ground.formulas
        terms = tuple(parts)
        return self.transfer(
            ground.disj(
                ground.conj(self.ground.boolean(term, binding) for term in terms)
                for binding in ev.bindings(params, self.domain)
            )
        )

    def truth(self, term: t.Term, binding: Mapping[str, Any]) -> int:
        """The formula of a truth value with its parameters given."""
        return self.transfer(self.ground.boolean(term, binding))

    def state_network(self) -> Network:
        """A network over the words of one state."""
        return Network(self.formulas, self.layout.fields.__getitem__, self.layout.words)

    def step_network(self) -> Network:
        """A network over the words of a state followed by those of its successor."""
        shift = self.ground.free
        offset = self.layout.words * WORD

        def place(cell: int) -> Field:
            if cell < shift:
                return self.layout.fields[cell]
            field = self.layout.fields[cell - shift]
            return Field(field.at + offset, field.bits, field.ordinals)

        return Network(self.formulas, place, 2 * self.layout.words)

    def decode(self, state: State) -> dict[ev.Cell, Any]:
        """The concrete state of packed words."""
        return self.layout.decode(state)
