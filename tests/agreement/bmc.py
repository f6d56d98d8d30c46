"""Bounded model checking with z3: a run of n steps as one formula, over the ground meaning of the induction engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from vllm_lifecycle.spec.check.induction import sexpr
from vllm_lifecycle.spec.check.induction.ground import (
    Sym,
    World,
    cell_symbol,
    enum_declarations,
    equality,
    ground,
    junction,
    printed,
)
from vllm_lifecycle.spec.check.induction.smt import Z3
from vllm_lifecycle.spec.check.induction.smtlib import literal, sort_name
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Property

Key = tuple[object, ...]


class Runs:
    """All runs of a machine in a domain, unrolled as far as asked."""

    def __init__(self, machine: Machine, domain: ev.Domain) -> None:
        self.machine, self.domain = machine, domain
        self.cells = ev.cells(machine, domain)
        self.solver = Z3(quantifiers=False, timeout_ms=60_000)
        start = ev.initial(machine, domain)
        self.solver.run(enum_declarations(machine))
        self._declare(0)
        self.solver.run("\n".join(f"(assert (= {self._at(c, 0)} {literal(v)}))" for c, v in start.items()))
        self.length = 0

    def _at(self, cell: ev.Cell, time: int) -> Sym:
        return cell_symbol(cell, f"!{time}")

    def _declare(self, time: int) -> None:
        sorts = [sort_name(self.machine.var(name).sort) for name, _ in self.cells]
        lines = [f"(declare-const {self._at(c, time)} {s})" for c, s in zip(self.cells, sorts, strict=True)]
        self.solver.run("\n".join(lines))

    def extend(self) -> None:
        """One more step."""
        now = self.length
        self.length += 1
        self._declare(self.length)
        steps = [self._step(a, b, now) for a, b in ev.instances(self.machine, self.domain)]
        self.solver.run(f"(assert {printed(junction('or', steps))})")

    def _step(self, action: Action, binding: dict[str, object], now: int) -> object:
        sets = {
            p.name: {v: v in binding[p.name] for v in self.domain.of(p.sort)}  # type: ignore[operator]
            for p in action.params
            if p.is_set
        }
        world = World(self.domain, lambda cell: self._at(cell, now), {**binding, **sets})
        after: dict[ev.Cell, object] = {}
        for name, function in action.updates:
            for args in product(*(self.domain.of(s) for s in self.machine.var(name).args)):
                local = world.bind({p.name: v for p, v in zip(function.params, args, strict=True)})
                after[name, args] = ground(function.body, local)
        moves = [equality(self._at(c, now + 1), after.get(c, self._at(c, now))) for c in self.cells]
        return junction("and", [*(ground(g.term, world) for g in action.guards), *moves])

    def violates(self, prop: Property) -> bool:
        """Whether a run of exactly this length ends in a state (or with a step) that violates the property."""
        before = self.length - 1 if prop.kind == "step" else self.length
        if before < 0:
            return False
        world = World(
            self.domain,
            lambda cell: self._at(cell, before),
            {},
            (lambda cell: self._at(cell, self.length)) if prop.kind == "step" else None,
        )
        bad = t.quantify(t.Exists, tuple(p.var for p in prop.params), t.neg(prop.body))
        claim = printed(ground(bad, world))
        return self.solver.run(f"(push)\n(assert {claim})\n(check-sat)\n(pop)") == "sat"

    def ends(self) -> Iterator[Key]:
        """The states that exactly this many steps can lead to, one by one."""
        names = [self._at(c, self.length) for c in self.cells]
        sorts = [self.machine.var(name).sort for name, _ in self.cells]
        self.solver.run("(push)")
        while self.solver.run("(check-sat)") == "sat":
            (pairs,) = sexpr.parse(self.solver.run(f"(get-value ({' '.join(names)}))"))
            values = [sexpr.value(pair[1], sort) for pair, sort in zip(pairs, sorts, strict=True)]
            yield tuple(values)
            same = " ".join(f"(= {n} {literal(v)})" for n, v in zip(names, values, strict=True))
            self.solver.run(f"(assert (not (and true {same})))")
        self.solver.run("(pop)")
