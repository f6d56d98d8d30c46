"""Counterexamples to induction: the smallest state from which one action breaks a claim, replayed before it is shown.

A counterexample to induction is a state that keeps all invariants, from which a step breaks one. It need not be reachable: it
says that the invariants are too weak, or the claim false. It is sought with exactly k individuals of each sort,
smallest total first, with counters exact; then cells are put back to their initial values one by one as long as the solver
still finds a model, so that what is left over matters. Nothing is shown that the concrete evaluator does not confirm.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from vllm_lifecycle.spec.check.induction import counts, sexpr
from vllm_lifecycle.spec.check.induction.ground import (
    Sym,
    World,
    cell_symbol,
    enum_declarations,
    ground,
    junction,
    printed,
)
from vllm_lifecycle.spec.check.induction.obligations import Obligation
from vllm_lifecycle.spec.check.induction.smt import Z3, TextSolver
from vllm_lifecycle.spec.check.induction.smtlib import literal, parameters, sort_name
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
from vllm_lifecycle.spec.lang.machine import Param
from vllm_lifecycle.spec.lang.sorts import BOOL, Sort, UninterpretedSort
from vllm_lifecycle.spec.lang.text import cell, value

LARGEST = 5
SECONDS = 4.0


@dataclass(frozen=True)
class Counterexample:
    """A state and a step that break a claim: `before` keeps every invariant, and the action is enabled in it.

    `chosen` are the action's parameters, `falls_for` the claim's. `after` is None where no action is taken.
    """

    obligation: Obligation
    domain: Domain
    start: Valuation
    before: Valuation
    chosen: Binding
    falls_for: Binding
    after: Valuation | None

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """The cells of the state before that differ from the initial state."""
        return tuple((cell(*c), value(v)) for c, v in self.before.items() if v != self.start[c])

    @property
    def step(self) -> TraceStep:
        """The action with its parameters and changes."""
        changed = [(c, v) for c, v in (self.after or {}).items() if v != self.before[c]]
        params = tuple((n, value(v)) for n, v in self.chosen.items())
        return TraceStep(
            self.obligation.action or self.obligation.label,
            params,
            tuple((cell(*c), value(v)) for c, v in changed),
        )

    def __str__(self) -> str:
        sizes = ", ".join(f"{len(names)} {sort}" for sort, names in self.domain.individuals.items())
        constants = "".join(f", {name} = {number}" for name, number in self.domain.constants.items())
        lines = [f"{self.obligation.name}: a counterexample to induction with {sizes}{constants}"]
        if not self.obligation.initial:
            lines.append(f"  before: {_equations(self.given) or 'the initial state'}")
        if self.after is not None:
            lines.append(f"  step:   {self.step}")
            lines.append(f"  after:  {_equations(self.step.changes) or 'nothing changes'}")
        places = _equations(tuple((n.rstrip("_"), value(v)) for n, v in self.falls_for.items()))
        lines.append(f"  falls for {places}" if places else "  falls")
        return "\n".join(lines)


def _equations(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} = {shown}" for name, shown in pairs)


def individuals(sorts: Sequence[UninterpretedSort], sizes: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Short names for the individuals of each sort: r0, r1, b0."""
    firsts = [s.name[0].lower() for s in sorts]
    prefix = {
        s.name: f if firsts.count(f) == 1 else s.name.lower() for s, f in zip(sorts, firsts, strict=True)
    }
    return {name: tuple(f"{prefix[name]}{i}" for i in range(n)) for name, n in sizes.items()}


def sizes_upto(
    sorts: Sequence[UninterpretedSort], largest: int = LARGEST, few: frozenset[str] = frozenset()
) -> Iterator[dict[str, int]]:
    """Numbers of individuals, from one of each sort on, smallest total first; sorts in `few` grow last."""
    names = [s.name for s in sorts]

    def order(sizes: tuple[int, ...]) -> tuple[int, int, int]:
        extra = sum(n - 1 for name, n in zip(names, sizes, strict=True) if name in few)
        return extra, sum(sizes), max(sizes, default=0)

    for sizes in sorted(product(range(1, largest + 1), repeat=len(names)), key=order):
        yield dict(zip(names, sizes, strict=True))


def smallest(
    theory: Theory, obligation: Obligation, largest: int = LARGEST, seconds: float = SECONDS
) -> Counterexample | None:
    """The smallest counterexample (or, where a model is wanted, some model), replayed.

    None when there is none within the sizes and seconds. RuntimeError when the evaluator does not confirm what the
    solver claims.
    """
    deadline = time.monotonic() + seconds
    idle = frozenset(s.name for s in theory.sorts) - _sorts(obligation)
    for sizes in sizes_upto(theory.sorts, largest, idle):
        if time.monotonic() > deadline:
            return None
        search = _Search(theory, obligation, Domain(individuals(theory.sorts, sizes)))
        if search.satisfiable():
            if not obligation.expect_model:
                search.shrink()
            return search.result()
    return None


def _sorts(obligation: Obligation) -> frozenset[str]:
    """The uninterpreted sorts that an obligation speaks of."""
    body = obligation.body
    sorts = {p.sort for p in body.params}
    for term in (body.goal, *body.hypotheses):
        for node in t.walk(term):
            if isinstance(node, t.ForAll | t.Exists):
                sorts |= {v.sort for v in node.vars}
    return frozenset(s.name for s in sorts if isinstance(s, UninterpretedSort))


class _Search:
    """One exact set of individuals, and a solver that looks for values of its cells and of the parameters."""

    def __init__(self, theory: Theory, obligation: Obligation, domain: Domain) -> None:
        self.theory, self.obligation, self.domain, self.machine = theory, obligation, domain, theory.machine
        self.wishes = 0
        self.assumed: list[str] = []
        self.cells = () if obligation.initial else cells(self.machine, domain)
        self.solver: TextSolver = Z3(quantifiers=False)
        self.solver.run(_state_text(theory, domain, self.cells))
        # Individuals are interchangeable: of the values that differ by renaming them only, one is enough.
        self.choices = list(_choices(obligation.body.params, domain))
        lines = [_declare(p, domain) for p in obligation.body.params]
        for number, choice in enumerate(self.choices):
            world = World(domain, cell_symbol, {**self._symbols(), **choice})
            claims = junction("and", (ground(term, world) for term in obligation.asserted))
            lines.append(f"(declare-const q.{number} Bool)(assert (=> q.{number} {printed(claims)}))")
        lines.append(f"(assert (or false {' '.join(f'q.{n}' for n in range(len(self.choices)))}))")
        self.solver.run("\n".join(lines))

    def _symbols(self) -> dict[str, Any]:
        binding: dict[str, Any] = {}
        for param in self.obligation.body.params:
            if param.is_set:
                binding[param.name] = {v: _element(param, v) for v in self.domain.of(param.sort)}
            else:
                binding[param.name] = Sym(f"p.{param.name}")
        return binding

    def satisfiable(self, *more: str) -> bool:
        """Whether there is a model under the assumptions and some wishes."""
        return self.solver.run(f"(check-sat-assuming ({' '.join((*self.assumed, *more))}))") == "sat"

    def shrink(self) -> None:
        """Small constants, small sets, and cells as at the start, as far as a model allows."""
        for const in self.machine.consts:
            for number in range(const.sort.low, const.sort.low + LARGEST):
                wish = self._wish(f"(= c.{const.name} {literal(number)})")
                if self.satisfiable(wish):
                    self.assumed.append(wish)
                    break
        sets = [
            _element(p, v) for p in self.obligation.body.params if p.is_set for v in self.domain.of(p.sort)
        ]
        wishes = [self._wish(f"(not {s})") for s in sets]
        for place in self.cells:
            start = self.machine.var(place[0]).init.value
            wishes.append(self._wish(f"(= {cell_symbol(place)} {literal(start)})"))
        # All wishes at once; each conflict costs one of those in it, which may be granted again at the end.
        dropped: list[str] = []
        while not self.satisfiable(*wishes):
            core = set(self.solver.run("(get-unsat-core)").strip("()").split())
            blamed = [w for w in wishes if w in core]
            if not blamed:
                break
            wishes.remove(blamed[-1])
            dropped.append(blamed[-1])
        self.assumed += wishes
        for wish in dropped[:-1]:
            if self.satisfiable(wish):
                self.assumed.append(wish)
        self.satisfiable()

    def _wish(self, claim: str) -> str:
        self.wishes += 1
        switch = f"w.{self.wishes}"
        self.solver.run(f"(declare-const {switch} Bool)(assert (=> {switch} {claim}))")
        return switch

    def _values(self, expressions: Sequence[str], sorts: Sequence[Sort]) -> list[Any]:
        if not expressions:
            return []
        (pairs,) = sexpr.parse(self.solver.run(f"(get-value ({' '.join(expressions)}))"))
        return [sexpr.value(pair[1], sort) for pair, sort in zip(pairs, sorts, strict=True)]

    def result(self) -> Counterexample:
        """The model as concrete values, replayed."""
        consts = self.machine.consts
        values = self._values([f"c.{c.name}" for c in consts], [c.sort for c in consts])
        domain = Domain(self.domain.individuals, {c.name: v for c, v in zip(consts, values, strict=True)})
        start = initial(self.machine, domain)
        sorts = [self.machine.var(name).sort for name, _ in self.cells]
        found = self._values([cell_symbol(c) for c in self.cells], sorts)
        before = {**start, **dict(zip(self.cells, found, strict=True))}
        binding = self._binding()
        after = self._after(domain, before, binding)
        own = [p.name for p in self.obligation.body.params[: self.obligation.body.own_params]]
        chosen = {name: binding.pop(name) for name in own}
        read = self._constants()
        shown = Domain(domain.individuals, {n: v for n, v in domain.constants.items() if n in read})
        found_at = Counterexample(self.obligation, shown, start, before, chosen, binding, after)
        _replay(self.theory, found_at, domain)
        return found_at

    def _constants(self) -> frozenset[str]:
        """The constants that matter: those that the obligation reads."""
        terms = (self.obligation.body.goal, *self.obligation.body.hypotheses)
        return frozenset(n.name for term in terms for n in t.walk(term) if isinstance(n, t.Const))

    def _binding(self) -> dict[str, Any]:
        chosen = self._values([f"q.{n}" for n in range(len(self.choices))], [BOOL] * len(self.choices))
        binding: dict[str, Any] = dict(self.choices[chosen.index(True)])
        for param in self.obligation.body.params:
            if param.is_set:
                members = self.domain.of(param.sort)
                inside = self._values([_element(param, v) for v in members], [BOOL] * len(members))
                binding[param.name] = frozenset(v for v, is_in in zip(members, inside, strict=True) if is_in)
            elif param.name not in binding:
                (binding[param.name],) = self._values([f"p.{param.name}"], [param.sort])
        return {p.name: binding[p.name] for p in self.obligation.body.params}

    def _after(self, domain: Domain, before: Valuation, binding: Binding) -> dict[Cell, Any] | None:
        if self.obligation.action is None:
            return None
        after = dict(before)
        context = Context(domain, before)
        for name, function in self.machine.action(self.obligation.action).updates:
            for args in product(*(domain.of(s) for s in self.machine.var(name).args)):
                local = {**binding, **{p.name: v for p, v in zip(function.params, args, strict=True)}}
                after[name, args] = evaluate(function.body, context, local)
        return after


def _state_text(theory: Theory, domain: Domain, known: tuple[Cell, ...]) -> str:
    """Declarations of one state of this size, its invariants, and exact counters."""
    key = (bool(known), *((sort, len(names)) for sort, names in domain.individuals.items()))
    texts = theory.texts
    if key not in texts:
        machine = theory.machine
        lines = [enum_declarations(machine)]
        for const in machine.consts:
            lines.append(
                f"(declare-const c.{const.name} Int)(assert (<= {literal(const.sort.low)} c.{const.name}))"
            )
        for cell in known:
            lines.append(f"(declare-const {cell_symbol(cell)} {sort_name(machine.var(cell[0]).sort)})")
        if known:
            world = World(domain, cell_symbol, {})
            terms = [a.term for a in theory.assumptions]
            lines += [f"(assert {printed(ground(term, world))})" for term in terms]
            for count in counts.over_individuals(machine):
                lines += [f"(assert {printed(claim)})" for claim in counts.exactly(machine, count, world)]
        texts[key] = "\n".join(lines)
    return texts[key]


def _element(param: Param, value: Any) -> Sym:
    return cell_symbol((f"set.{param.name}", (value,)))


def _declare(param: Param, domain: Domain) -> str:
    if param.is_set:
        return "\n".join(f"(declare-const {_element(param, v)} Bool)" for v in domain.of(param.sort))
    return "" if isinstance(param.sort, UninterpretedSort) else parameters((param,))


def _choices(params: tuple[Param, ...], domain: Domain) -> Iterator[dict[str, Hashable]]:
    """Values of the parameters that are individuals, up to renaming: each new one is the first unused of its sort."""
    if not params:
        yield {}
        return
    *earlier, last = params
    for choice in _choices(tuple(earlier), domain):
        if last.is_set or not isinstance(last.sort, UninterpretedSort):
            yield choice
            continue
        names = domain.individuals[last.sort.name]
        same = {p.name for p in earlier if p.sort == last.sort and not p.is_set}
        used = {choice[name] for name in same}
        for name in names[: len(used) + 1]:
            yield {**choice, last.name: name}


def _replay(theory: Theory, found: Counterexample, domain: Domain) -> None:
    """Confirm by concrete evaluation; RuntimeError otherwise."""
    obligation, context = found.obligation, Context(domain, found.before)
    binding = {**found.chosen, **found.falls_for}
    checks: list[tuple[str, t.Term, bool]] = []
    if not obligation.initial:
        checks += [(a.name, a.term, True) for a in theory.assumptions]
    checks += [("a hypothesis", h, True) for h in obligation.body.hypotheses]
    if not obligation.expect_model:
        checks.append(("the goal", obligation.body.goal, False))
    for what, term, expected in checks:
        if evaluate(term, context, binding) is not expected:
            raise RuntimeError(
                f"{obligation.name}: the evaluator does not confirm {what} of the solver's model"
            )
    if found.after is not None and obligation.body.claimed is not None:
        stepped = Context(domain, found.before if obligation.kind == "step" else found.after, found.after)
        if evaluate(obligation.body.claimed, stepped, binding):
            raise RuntimeError(
                f"{obligation.name}: the claim holds after the concrete step, unlike in the solver's model"
            )
