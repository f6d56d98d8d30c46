"""Which values can a cell take at all: the least sets closed under the instances, one set per cell.

An over-approximation (each cell by itself) of what is reachable, so folding by it is exact: a cell with one value left is a
constant, an instance whose guard cannot be true under the sets never runs, and a field needs bits for the values left only.
"""

from __future__ import annotations

from vllm_lifecycle.spec.check.explicit.formula import Formulas
from vllm_lifecycle.spec.check.explicit.ground import Ground, Instance


def possible_values(
    ground: Ground, instances: list[Instance], at_least: list[int] | None = None
) -> list[int]:
    """Masks of the values that each state cell can take; `at_least` may widen them (which stays exact)."""
    formulas = ground.formulas
    sets = [1 << start for start in ground.start]
    if at_least is not None:
        sets = [a | b for a, b in zip(sets, at_least, strict=True)]
    open_cells = formulas.full[ground.count : ground.free]
    reads = [_reads(formulas, instance) for instance in instances]
    readers: dict[int, list[int]] = {}
    for i, cells in enumerate(reads):
        for cell in cells:
            readers.setdefault(cell, []).append(i)
    waiting = set(range(len(instances)))
    while waiting:
        grown: set[int] = set()
        all_sets = sets + open_cells
        memo: dict[int, bool] = {}
        for i in sorted(waiting):
            instance = instances[i]
            if not formulas.possible(instance.guard, all_sets, memo):
                continue
            for change in instance.changes:
                for value, condition in change.cases.items():
                    mask = ground.mask(change.cell, value)
                    if not sets[change.cell] & mask and formulas.possible(condition, all_sets, memo):
                        sets[change.cell] |= mask
                        grown.add(change.cell)
        waiting = {i for cell in grown for i in readers.get(cell, ())}
    return sets


def _reads(formulas: Formulas, instance: Instance) -> set[int]:
    conditions = (node for change in instance.changes for node in change.cases.values())
    return formulas.cells(instance.guard, *conditions)
