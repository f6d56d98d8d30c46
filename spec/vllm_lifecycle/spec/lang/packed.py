"""Packed states: a state of one domain as a tuple of small numbers, one per cell in the order of `evaluate.cells`.

A truth value is 0 or 1, an enum member or an individual its position in its sort, an integer itself, a set-valued parameter
a bit mask. Packed states are hashable and small, so that plain Python can keep many of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from vllm_lifecycle.spec.lang.evaluate import Cell, Domain, Valuation, cells
from vllm_lifecycle.spec.lang.machine import Machine, Param
from vllm_lifecycle.spec.lang.sorts import EnumSort, IntSort, Sort, UninterpretedSort

Packed = tuple[int, ...]
Arguments = tuple[int, ...]


class Layout:
    """Which number of a packed state is which cell; DefinitionError when the domain leaves a size or constant open."""

    def __init__(self, machine: Machine, domain: Domain) -> None:
        self.domain = domain
        self.cells: tuple[Cell, ...] = cells(machine, domain)
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        offset = 0
        for var in machine.vars:
            sizes = [len(domain.of(s)) for s in var.args]
            strides = [1] * len(sizes)
            for i in range(len(sizes) - 2, -1, -1):
                strides[i] = strides[i + 1] * sizes[i + 1]
            self._places[var.name] = (offset, tuple(strides))
            offset += strides[0] * sizes[0] if sizes else 1
        self._codes: dict[Sort, dict[Hashable, int] | None] = {}
        sorts = [machine.var(name).sort for name, _ in self.cells]
        self._tables = tuple((cell, self._table(sort)) for cell, sort in zip(self.cells, sorts, strict=True))
        self._values = tuple(None if isinstance(sort, IntSort) else domain.of(sort) for sort in sorts)

    def place(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Where the cells of a variable begin, and how far each argument moves."""
        return self._places[name]

    def _table(self, sort: Sort) -> dict[Hashable, int] | None:
        """The numbers of a sort's values, or None where they are numbers."""
        if sort not in self._codes:
            numbers = isinstance(sort, IntSort)
            self._codes[sort] = None if numbers else {v: i for i, v in enumerate(self.domain.of(sort))}
        return self._codes[sort]

    def code(self, sort: Sort, value: Any) -> int:
        """The number that stands for a value of a sort."""
        table = self._table(sort)
        return int(value) if table is None else table[value]

    def value(self, sort: Sort, code: int) -> Any:
        """The value that a number stands for."""
        if isinstance(sort, EnumSort | UninterpretedSort):
            return self.domain.of(sort)[code]
        return code if isinstance(sort, IntSort) else bool(code)

    def codes(self, sort: Sort) -> tuple[int, ...]:
        """The numbers that stand for the values of a sort, in their order."""
        return tuple(self.code(sort, v) for v in self.domain.of(sort))

    def pack(self, state: Valuation) -> Packed:
        """A state as numbers; KeyError when a cell is missing."""
        return tuple([state[c] if table is None else table[state[c]] for c, table in self._tables])

    def unpack(self, state: Packed) -> dict[Cell, Any]:
        """A packed state as the mapping from cells to values."""
        values = zip(self.cells, self._values, state, strict=True)
        return {cell: code if known is None else known[code] for cell, known, code in values}

    def binding(self, params: tuple[Param, ...], arguments: Arguments) -> dict[str, Any]:
        """Arguments by parameter name, as `evaluate` takes them (a set as a frozenset)."""
        result: dict[str, Any] = {}
        for param, code in zip(params, arguments, strict=True):
            if param.is_set:
                values = self.domain.of(param.sort)
                result[param.name] = frozenset(v for i, v in enumerate(values) if code >> i & 1)
            else:
                result[param.name] = self.value(param.sort, code)
        return result

    def arguments(self, params: tuple[Param, ...], binding: Mapping[str, Any]) -> Arguments:
        """The opposite of `binding`."""
        codes = []
        for param in params:
            value = binding[param.name]
            bits = (1 << self.code(param.sort, v) for v in value) if param.is_set else ()
            codes.append(sum(bits) if param.is_set else self.code(param.sort, value))
        return tuple(codes)
