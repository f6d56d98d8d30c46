"""Counterexamples to induction: the smallest state from which one action breaks a claim, replayed before it is shown.

A counterexample to induction is a state that keeps all invariants, from which a step breaks one. It need not be reachable: it
says that the invariants are too weak, or the claim false. It is sought with exactly k individuals of each sort,
smallest total first, with counters exact; then cells are put back to their initial values one by one as long as the solver
still finds a model, so that what is left over matters. Nothing is shown that the concrete evaluator does not confirm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from vllm_lifecycle.spec.check.induction import counts, sexpr
from vllm_lifecycle.spec.check.induction.obligations import Obligation
from vllm_lifecycle.spec.check.induction.smt import TextSolver
from vllm_lifecycle.spec.check.induction.smtlib import literal, question, sort_name, text
from vllm_lifecycle.spec.check.induction.theory import Theory
from vllm_lifecycle.spec.check.verdict import TraceStep
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import (
    Binding,
    Cell,
    Context,
    Domain,
    Valuation,
    cells,
    evaluate,
    initial,
)
from vllm_lifecycle.spec.lang.machine import Count, Machine, Param
from vllm_lifecycle.spec.lang.sorts import IntSort, UninterpretedSort

LARGEST = 5


@dataclass(frozen=True)
class Counterexample:
    """A state and a step that break a claim: `before` keeps every invariant, and the action is enabled in it."""

    obligation: Obligation
    domain: Domain
    start: Valuation
    before: Valuation
    binding: Binding
    after: Valuation | None

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """The cells of the state before that differ from the initial state."""
        return tuple((show_cell(c), show(v)) for c, v in self.before.items() if v != self.start[c])

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """The cells that the step changes, with their new values."""
        if self.after is None:
            return ()
        return tuple((show_cell(c), show(v)) for c, v in self.after.items() if v != self.before[c])

    @property
    def step(self) -> TraceStep:
        """The action with its parameters and changes."""
        own = self._action_params
        params = tuple((n, show(v)) for n, v in self.binding.items() if n in own)
        return TraceStep(self.obligation.action or "initial state", params, self.changes)

    @property
    def falls_for(self) -> tuple[tuple[str, str], ...]:
        """The parameters of the claim for which it falls."""
        own = self._action_params
        return tuple((n.rstrip("_"), show(v)) for n, v in self.binding.items() if n not in own)

    @property
    def _action_params(self) -> frozenset[str]:
        return frozenset(p.name for p in self.obligation.params[: self.obligation.action_params])

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(names)} {sort}" for sort, names in self.domain.individuals.items())
        constants = "".join(f", {name} = {value}" for name, value in self.domain.constants.items())
        lines = [f"{self.obligation.name}: a counterexample to induction with {sizes}{constants}"]
        if not self.obligation.initial:
            lines.append(
                "  before: " + (", ".join(f"{c} = {v}" for c, v in self.given) or "the initial state")
            )
            lines.append(f"  step:   {self.step}")
            lines.append(
                "  after:  " + (", ".join(f"{c} = {v}" for c, v in self.changes) or "nothing changes")
            )
        lines.append(
            "  falls"
            + (" for " + ", ".join(f"{n} = {v}" for n, v in self.falls_for) if self.falls_for else "")
        )
        return "\n".join(lines)


def show(value: Any) -> str:
    """A value as text."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(show, value))) + "}"
    return str(getattr(value, "name", value))


def show_cell(cell: Cell) -> str:
    """A cell as text: `table[r1, b2]`."""
    name, args = cell
    return f"{name}[{', '.join(map(show, args))}]" if args else name


def individuals(machine: Machine, sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Short names for the individuals of each sort: r1, r2, b1."""
    firsts = [s.name[0].lower() for s in machine.sorts]
    prefix = {
        s.name: f if firsts.count(f) == 1 else s.name.lower()
        for s, f in zip(machine.sorts, firsts, strict=True)
    }
    return {name: tuple(f"{prefix[name]}{i + 1}" for i in range(n)) for name, n in sizes.items()}


def sizes_upto(machine: Machine, largest: int = LARGEST) -> Iterator[dict[str, int]]:
    """Numbers of individuals, from one of each sort on, smallest total first."""
    names = [s.name for s in machine.sorts]
    every = sorted(
        product(range(1, largest + 1), repeat=len(names)),
        key=lambda sizes: (sum(sizes), max(sizes, default=0)),
    )
    for sizes in every:
        yield dict(zip(names, sizes, strict=True))


def smallest(
    theory: Theory, solver: TextSolver, obligation: Obligation, largest: int = LARGEST, tries: int = 60
) -> Counterexample | None:
    """The smallest counterexample (or, where a model is wanted, model), replayed; None when none is found within the sizes.

    `solver` holds the theory's preamble. RuntimeError when the evaluator does not confirm what the solver claims.
    """
    for count, sizes in enumerate(sizes_upto(theory.machine, largest)):
        if count == tries:
            return None
        solver.run("(push)")
        try:
            search = _Search(theory, solver, obligation, Domain(individuals(theory.machine, sizes)))
            if search.satisfiable():
                search.shrink()
                found = search.result()
                _replay(theory, found)
                return found
        finally:
            solver.run("(pop)")
    return None


class _Search:
    """One exact set of individuals: declared, told apart, and closed."""

    def __init__(self, theory: Theory, solver: TextSolver, obligation: Obligation, domain: Domain) -> None:
        self.theory, self.solver, self.obligation, self.domain = theory, solver, obligation, domain
        self.machine = theory.machine
        self.wishes = 0
        self.assumed = list(theory.all_switches(obligation))
        lines: list[str] = []
        for sort in self.machine.sorts:
            names = [f"i.{i}" for i in domain.individuals[sort.name]]
            lines += [f"(declare-const {n} {sort_name(sort)})" for n in names]
            if len(names) > 1:
                lines.append(f"(assert (distinct {' '.join(names)}))")
            closed = " ".join(f"(= x {n})" for n in names)
            lines.append(f"(assert (forall ((x {sort_name(sort)})) (or {closed})))")
        for count in counts.over_individuals(self.machine):
            if not obligation.initial:
                lines.append(self._exact(count))
        lines.append(question(obligation.params, obligation.asserted))
        solver.run("\n".join(lines))
        finite = all(not isinstance(s, IntSort) for v in self.machine.vars for s in v.args)
        self.cells = () if obligation.initial or not finite else cells(self.machine, domain)
        self.finite = finite

    def _exact(self, count: Count) -> str:
        places = product(*(self._names(p) for p in count.args))
        lines: list[str] = []
        for place in places:
            binders = " ".join(f"(p.{p.name} {v})" for p, v in zip(count.args, place, strict=True))
            parts = " ".join(
                f"(let ((p.{count.over.name} {x})) (ite {text(count.member)} 1 0))"
                for x in self._names(count.over)
            )
            claim = f"(= {text(counts.counter_of(self.machine, count))} (+ 0 {parts}))"
            lines.append(f"(assert (let ({binders}) {claim}))" if binders else f"(assert {claim})")
        return "\n".join(lines)

    def _names(self, param: Param) -> list[str]:
        return [_symbol(v, param) for v in self.domain.of(param.sort)]

    def satisfiable(self, *more: str) -> bool:
        return self.solver.run(f"(check-sat-assuming ({' '.join((*self.assumed, *more))}))") == "sat"

    def shrink(self) -> None:
        """Put constants to small values and cells back to the initial ones while a model remains."""
        for const in self.machine.consts:
            for value in range(const.sort.low, const.sort.low + LARGEST):
                if self._keep(f"(= c.{const.name} {literal(value)})"):
                    break
        # A set parameter as small as possible, then the state as close to the start as possible.
        wishes = [f"(not {s})" for s, _, _ in self._sets()]
        wishes += [f"(= {_read(c)} {literal(self.machine.var(c[0]).init.value)})" for c in self.cells]
        for wish in wishes:
            self._keep(wish)
        self.satisfiable()

    def _keep(self, wish: str) -> bool:
        self.wishes += 1
        switch = f"w.{self.wishes}"
        self.solver.run(f"(declare-const {switch} Bool)(assert (=> {switch} {wish}))")
        if self.satisfiable(switch):
            self.assumed.append(switch)
            return True
        self.solver.run(f"(assert (not {switch}))")
        return False

    def _sets(self) -> list[tuple[str, Param, Any]]:
        return [
            (f"(set.{p.name} {_symbol(v, p)})", p, v)
            for p in self.obligation.params
            if p.is_set
            for v in self.domain.of(p.sort)
        ]

    def _values(self, expressions: list[str]) -> list[sexpr.SExpr]:
        if not expressions:
            return []
        (pairs,) = sexpr.parse(self.solver.run(f"(get-value ({' '.join(expressions)}))"))
        return [pair[1] for pair in pairs]

    def result(self) -> Counterexample:
        """The model as concrete values."""
        constants = {
            c.name: sexpr.value(v, c.sort)
            for c, v in zip(
                self.machine.consts, self._values([f"c.{c.name}" for c in self.machine.consts]), strict=True
            )
        }
        domain = Domain(self.domain.individuals, constants)
        start = initial(self.machine, domain)
        before = dict(start)
        self.cells = () if self.obligation.initial else tuple(start)
        for cell, value in zip(self.cells, self._values([_read(c) for c in self.cells]), strict=True):
            before[cell] = sexpr.value(value, self.machine.var(cell[0]).sort)
        binding = self._binding()
        return Counterexample(
            self.obligation, domain, start, before, binding, self._after(domain, before, binding)
        )

    def _binding(self) -> dict[str, Any]:
        binding: dict[str, Any] = {}
        for param in self.obligation.params:
            if param.is_set:
                continue
            if isinstance(param.sort, UninterpretedSort):
                names = self.domain.individuals[param.sort.name]
                same = self._values([f"(= p.{param.name} i.{n})" for n in names])
                binding[param.name] = names[same.index("true")]
            else:
                (printed,) = self._values([f"p.{param.name}"])
                binding[param.name] = sexpr.value(printed, param.sort)
        sets = self._sets()
        inside = self._values([s for s, _, _ in sets])
        for param in self.obligation.params:
            if param.is_set:
                members = zip(sets, inside, strict=True)
                binding[param.name] = frozenset(
                    v for (_, p, v), is_in in members if p == param and is_in == "true"
                )
        return binding

    def _after(self, domain: Domain, before: Valuation, binding: Binding) -> dict[Cell, Any] | None:
        if self.obligation.action is None:
            return None
        action = self.machine.action(self.obligation.action)
        after = dict(before)
        context = Context(domain, before)
        for name, function in action.updates:
            for args in product(*(domain.of(s) for s in self.machine.var(name).args)):
                local = {**binding, **{p.name: v for p, v in zip(function.params, args, strict=True)}}
                after[name, args] = evaluate(function.body, context, local)
        return after


def _symbol(value: Any, param: Param) -> str:
    return f"i.{value}" if isinstance(param.sort, UninterpretedSort) else literal(value)


def _read(cell: Cell) -> str:
    name, args = cell
    shown = [f"i.{a}" if type(a) is str else literal(a) for a in args]  # type: ignore[arg-type]
    return f"(s.{name} {' '.join(shown)})" if args else f"s.{name}"


def _replay(theory: Theory, found: Counterexample) -> None:
    """Confirm by concrete evaluation; RuntimeError otherwise."""
    obligation, context = found.obligation, Context(found.domain, found.before)
    checks: list[tuple[str, t.Term, bool]] = []
    if not obligation.initial:
        checks += [(a.name, a.term, True) for a in theory.assumptions]
    checks += [("a hypothesis", h, True) for h in obligation.hypotheses]
    if not obligation.expect_model:
        checks.append(("the goal", obligation.goal, False))
    for what, term, expected in checks:
        if evaluate(term, context, found.binding) is not expected:
            raise RuntimeError(
                f"{obligation.name}: the evaluator does not confirm {what} of the solver's model"
            )
    if found.after is not None and obligation.claimed is not None:
        stepped = Context(
            found.domain, found.before if obligation.kind == "step" else found.after, found.after
        )
        if evaluate(obligation.claimed, stepped, found.binding):
            raise RuntimeError(
                f"{obligation.name}: the claim holds after the concrete step, unlike in the solver's model"
            )
