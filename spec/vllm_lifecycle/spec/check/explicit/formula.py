"""Ground formulas: conjunctions and disjunctions of literals `cell in values`, shared and simplified when built.

A formula is an integer that names a node; equal formulas are one node. Negation is pushed to the literals, so there are two
kinds of node only: And(literals, ors) and Or(literals, ands). A literal is (cell, mask) where bit i of the mask says that
the i-th value of the cell is allowed; a literal that allows all values is TRUE, one that allows none is FALSE. Rejected:
decision diagrams (canonical, but their size hangs on an order of the cells, and no step here needs canonicity).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Literal = tuple[int, int]
FALSE = 0
TRUE = 1
AND = True
OR = False


class Formulas:
    """An arena of shared formulas over cells; `full[cell]` is the mask of all values that the cell can take."""

    def __init__(self, full: list[int]) -> None:
        self.full = full
        self.kind: list[bool] = [OR, AND]
        self.literals: list[tuple[Literal, ...]] = [(), ()]
        self.parts: list[tuple[int, ...]] = [(), ()]
        self.support: list[int] = [0, 0]
        """The cells that a node mentions, as bits of a number."""
        self._index: dict[tuple[bool, tuple[Literal, ...], tuple[int, ...]], int] = {
            (OR, (), ()): FALSE,
            (AND, (), ()): TRUE,
        }
        self._negated: dict[int, int] = {FALSE: TRUE, TRUE: FALSE}

    def _node(self, kind: bool, literals: tuple[Literal, ...], parts: tuple[int, ...]) -> int:
        key = (kind, literals, parts)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.kind)
            self.kind.append(kind)
            self.literals.append(literals)
            self.parts.append(parts)
            support = 0
            for cell, _ in literals:
                support |= 1 << cell
            for part in parts:
                support |= self.support[part]
            self.support.append(support)
        return found

    def literal(self, cell: int, mask: int) -> int:
        """`cell` has one of the values in `mask`."""
        mask &= self.full[cell]
        if not mask:
            return FALSE
        if mask == self.full[cell]:
            return TRUE
        return self._node(AND, ((cell, mask),), ())

    def conj(self, nodes: Iterable[int]) -> int:
        """Conjunction."""
        literals: dict[int, int] = {}
        parts: set[int] = set()
        for node in nodes:
            if node == FALSE:
                return FALSE
            if self.kind[node] is AND:
                for cell, mask in self.literals[node]:
                    both = literals.get(cell, mask) & mask
                    if not both:
                        return FALSE
                    literals[cell] = both
                parts.update(self.parts[node])
            else:
                parts.add(node)
        if not literals and len(parts) == 1:
            return next(iter(parts))
        return self._node(AND, tuple(sorted(literals.items())), tuple(sorted(parts)))

    def disj(self, nodes: Iterable[int]) -> int:
        """Disjunction."""
        literals: dict[int, int] = {}
        parts: set[int] = set()
        for node in nodes:
            if node == TRUE:
                return TRUE
            single = self.kind[node] is OR or (len(self.literals[node]) == 1 and not self.parts[node])
            if single:
                for cell, mask in self.literals[node]:
                    both = literals.get(cell, 0) | mask
                    if both == self.full[cell]:
                        return TRUE
                    literals[cell] = both
                if self.kind[node] is OR:
                    parts.update(self.parts[node])
            else:
                parts.add(node)
        if not parts and len(literals) == 1:
            return self._node(AND, tuple(literals.items()), ())
        if not literals and len(parts) == 1:
            return next(iter(parts))
        return self._node(OR, tuple(sorted(literals.items())), tuple(sorted(parts)))

    def neg(self, node: int) -> int:
        """Negation, by De Morgan's laws."""
        found = self._negated.get(node)
        if found is None:
            members = [self.literal(c, self.full[c] & ~m) for c, m in self.literals[node]]
            members += [self.neg(p) for p in self.parts[node]]
            found = self.disj(members) if self.kind[node] is AND else self.conj(members)
            self._negated[node] = found
            self._negated[found] = node
        return found

    def choose(self, cond: int, then: int, other: int) -> int:
        """If-then-else."""
        if cond == TRUE or then == other:
            return then
        if cond == FALSE:
            return other
        return self.disj((self.conj((cond, then)), self.conj((self.neg(cond), other))))

    def assume(self, node: int, known: Mapping[int, int], memo: dict[int, int] | None = None) -> int:
        """The formula simplified where each cell of `known` has one of its values; equal to it wherever that is true."""
        cells = 0
        for cell in known:
            cells |= 1 << cell
        return self._assume(node, known, cells, {} if memo is None else memo)

    def _assume(self, node: int, known: Mapping[int, int], cells: int, memo: dict[int, int]) -> int:
        if not self.support[node] & cells:
            return node
        found = memo.get(node)
        if found is not None:
            return found
        members: list[int] = []
        changed = False
        for cell, mask in self.literals[node]:
            given = known.get(cell)
            if given is None or (given & mask and given & ~mask):
                members.append(self.literal(cell, mask))
            else:
                changed = True
                members.append(TRUE if given & mask else FALSE)
        for part in self.parts[node]:
            simpler = self._assume(part, known, cells, memo)
            changed = changed or simpler != part
            members.append(simpler)
        result = node
        if changed:
            result = self.conj(members) if self.kind[node] is AND else self.disj(members)
        memo[node] = result
        return result

    def known(self, node: int) -> dict[int, int]:
        """What a true formula says of single cells."""
        return dict(self.literals[node]) if self.kind[node] is AND else {}

    def tidy(self, node: int) -> int:
        """Use a conjunction's literals to simplify its other parts, until nothing changes."""
        while self.kind[node] is AND and self.parts[node] and self.literals[node]:
            known = dict(self.literals[node])
            memo: dict[int, int] = {}
            parts = [self.assume(p, known, memo) for p in self.parts[node]]
            simpler = self.conj([self._node(AND, self.literals[node], ()), *parts])
            if simpler == node:
                break
            node = simpler
        return node

    def possible(self, node: int, sets: list[int], memo: dict[int, bool]) -> bool:
        """Whether each literal can be true by itself under sets of values; false means surely unsatisfiable."""
        found = memo.get(node)
        if found is not None:
            return found
        if self.kind[node] is AND:
            result = all(sets[c] & m for c, m in self.literals[node]) and all(
                self.possible(p, sets, memo) for p in self.parts[node]
            )
        else:
            result = any(sets[c] & m for c, m in self.literals[node]) or any(
                self.possible(p, sets, memo) for p in self.parts[node]
            )
        memo[node] = result
        return result

    def size(self, node: int) -> int:
        """The number of literals, repetitions counted."""
        return len(self.literals[node]) + sum(self.size(p) for p in self.parts[node])

    def cells(self, *nodes: int) -> set[int]:
        """The cells that the formulas mention."""
        support = 0
        for node in nodes:
            support |= self.support[node]
        return {cell for cell in range(support.bit_length()) if support >> cell & 1}


class Transfer:
    """Copies formulas of one arena into another one whose cells have fewer values (or other numbers)."""

    def __init__(self, source: Formulas, target: Formulas, rename: Mapping[int, int] | None = None) -> None:
        self.source = source
        self.target = target
        self.rename = rename or {}
        self._memo: dict[int, int] = {FALSE: FALSE, TRUE: TRUE}

    def __call__(self, node: int) -> int:
        """The same formula in the target arena."""
        found = self._memo.get(node)
        if found is None:
            rename = self.rename
            members = [self.target.literal(rename.get(c, c), m) for c, m in self.source.literals[node]]
            members += [self(p) for p in self.source.parts[node]]
            found = self.target.conj(members) if self.source.kind[node] is AND else self.target.disj(members)
            self._memo[node] = found
        return found
