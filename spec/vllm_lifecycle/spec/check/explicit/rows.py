"""Rows: action instances as masks. `next = (state & keep) ^ put ^ moved bits`, where the guard's plane is true.

One row per instance and per choice of its set-valued parameters. A next bit that depends on the state is a derived bit moved
into place; bits with the same shift move together, so `free[b] := nobody holds b` costs one shift for all blocks. A row that
would take a number out of its range is an error row: it has a guard and no successor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_lifecycle.spec.check.explicit.formula import FALSE, TRUE, Formulas, Transfer
from vllm_lifecycle.spec.check.explicit.ground import Choice, Instance
from vllm_lifecycle.spec.check.explicit.layout import WORD, Layout
from vllm_lifecycle.spec.check.explicit.planes import Network, Outputs


@dataclass(frozen=True, slots=True)
class Move:
    """Bits `mask` of word `target` are toggled by bits of word `source`, shifted left by `shift` (right if negative)."""

    source: int
    target: int
    shift: int
    mask: int


@dataclass(frozen=True, slots=True)
class Row:
    """One ground action with all parameters fixed: `guard` is a plane; `fault` names cell and number of an error row."""

    instance: Instance
    chosen: tuple[Choice, ...]
    guard: int
    keep: int
    put: int
    moves: tuple[Move, ...]
    fault: tuple[int, int] | None = None

    @property
    def binding(self) -> dict[str, Any]:
        """Parameter values, sets as frozensets."""
        action = self.instance.action
        sets = {
            p.name: frozenset(c.element for c in self.chosen if c.param == p.name)
            for p in action.params
            if p.is_set
        }
        return {p.name: sets[p.name] if p.is_set else self.instance.binding[p.name] for p in action.params}


class _Effect:
    """Next values under construction: kept bits, put bits, and formulas to be moved to positions."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.put = 0
        self.wanted: list[tuple[int, int]] = []


class RowBuilder:
    """Makes rows from instances, over the formulas of cells with possible values only."""

    def __init__(self, transfer: Transfer, layout: Layout, network: Network, outputs: Outputs) -> None:
        self.transfer = transfer
        self.formulas: Formulas = transfer.target
        self.layout = layout
        self.network = network
        self.outputs = outputs
        self.all = sum(f.mask for f in layout.fields.values())

    def rows(self, instance: Instance) -> Iterator[Row]:
        """All rows of an instance that can be enabled."""
        f = self.formulas
        guard = f.tidy(self.transfer(instance.guard))
        if guard == FALSE:
            return
        known = f.known(guard)
        memo: dict[int, int] = {}
        fixed: list[tuple[int, list[tuple[int, int]]]] = []
        open_: list[tuple[int, list[tuple[int, int]]]] = []
        free = {c.cell for c in instance.choices}
        for change in instance.changes:
            if change.cell not in self.layout.fields:
                continue
            cases = [
                (self.layout.ground.values[change.cell].index(v), f.assume(self.transfer(n), known, memo))
                for v, n in change.cases.items()
            ]
            cells = f.cells(*(node for _, node in cases))
            (open_ if cells & free else fixed).append((change.cell, cases))
        base = _Effect(self.all)
        for cell, cases in fixed:
            self._change(base, cell, cases, known)
        faults = [(cell, value, self.transfer(node)) for cell, value, node in instance.overflow]
        for chosen, assumed in self._choices(guard, instance.choices):
            here = f.tidy(f.assume(guard, assumed))
            if here == FALSE:
                continue
            effect = _Effect(base.keep)
            effect.put = base.put
            effect.wanted = list(base.wanted)
            known = {**f.known(here), **assumed}
            memo = {}
            for cell, cases in open_:
                self._change(effect, cell, [(o, f.assume(n, known, memo)) for o, n in cases], known)
            wrong = FALSE
            for cell, value, node in faults:
                bad = f.tidy(f.conj((here, f.assume(node, known, memo))))
                if bad != FALSE:
                    wrong = f.disj((wrong, bad))
                    yield Row(instance, chosen, self.network.plane(bad), 0, 0, (), (cell, value))
            if wrong != FALSE:
                here = f.conj((here, f.neg(wrong)))
                if here == FALSE:
                    continue
            moves = self._moves(effect)
            yield Row(instance, chosen, self.network.plane(here), effect.keep, effect.put, moves)

    def _choices(
        self, guard: int, choices: tuple[Choice, ...]
    ) -> Iterator[tuple[tuple[Choice, ...], Mapping[int, int]]]:
        """Choices of set elements under which the guard is not plainly false."""

        def visit(
            node: int, index: int, chosen: tuple[Choice, ...], assumed: dict[int, int]
        ) -> Iterator[tuple[tuple[Choice, ...], Mapping[int, int]]]:
            if node == FALSE:
                return
            if index == len(choices):
                yield chosen, assumed
                return
            choice = choices[index]
            for mask, more in ((1, chosen), (2, (*chosen, choice))):
                step = {choice.cell: mask}
                simpler = self.formulas.tidy(self.formulas.assume(node, step))
                yield from visit(simpler, index + 1, more, {**assumed, **step})

        yield from visit(guard, 0, (), {})

    def _change(
        self, effect: _Effect, cell: int, cases: list[tuple[int, int]], known: Mapping[int, int]
    ) -> None:
        f = self.formulas
        field = self.layout.fields[cell]
        coded = [(field.ordinals.index(o), n) for o, n in cases if n != FALSE and o in field.ordinals]
        current = known.get(cell, f.full[cell])
        for bit in range(field.bits):
            target = field.at + bit
            new = f.disj(n for code, n in coded if code >> bit & 1)
            ones = sum(1 << o for code, o in enumerate(field.ordinals) if code >> bit & 1)
            old = TRUE if not current & ~ones else FALSE if not current & ones else f.literal(cell, ones)
            if new == old:
                continue
            if new <= TRUE:
                effect.keep &= ~(1 << target)
                effect.put |= new << target
                continue
            toggle = f.disj(
                (
                    f.conj((f.neg(old), f.assume(new, {cell: f.full[cell] & ~ones}))),
                    f.conj((old, f.neg(f.assume(new, {cell: ones})))),
                )
            )
            if toggle == FALSE:
                continue
            if toggle == TRUE:
                effect.put |= 1 << target
            elif f.size(toggle) < f.size(new):
                effect.wanted.append((toggle, target))
            else:
                effect.keep &= ~(1 << target)
                effect.wanted.append((new, target))

    def _moves(self, effect: _Effect) -> tuple[Move, ...]:
        """Moves for the wanted formulas."""
        masks: dict[tuple[int, int, int], int] = {}
        planes = [(self.network.plane(node), target) for node, target in effect.wanted]
        for position, (_, target) in zip(self.outputs.places(planes), planes, strict=True):
            key = (position // WORD, target // WORD, target % WORD - position % WORD)
            masks[key] = masks.get(key, 0) | 1 << target % WORD
        return tuple(Move(*key, mask) for key, mask in sorted(masks.items()))
