"""Grounding: terms over a finite domain become formulas over cells, one action instance at a time.

An instance fixes the scalar parameters of an action; a set-valued parameter stays open as one free boolean cell per element
(numbered after the state's cells), so that a guard is grounded once for all its subsets. A term of another sort than Bool
becomes its cases: value -> formula under which it has that value. After `lang/evaluate` this is the second meaning of
terms, and every trace is replayed through the first before it is shown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, assert_never

from vllm_lifecycle.spec.check.explicit.formula import FALSE, TRUE, Formulas
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param
from vllm_lifecycle.spec.lang.sorts import BOOL, BoolSort, DefinitionError

Cases = dict[Any, int]
BOOLEANS = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """One element of a set-valued parameter, as a free cell."""

    param: str
    element: Hashable
    cell: int


@dataclass(frozen=True, slots=True)
class Change:
    """The next value of one cell: value -> formula."""

    cell: int
    cases: Cases


@dataclass(frozen=True, slots=True)
class Instance:
    """One ground action: scalar parameters fixed, set-valued ones open; `overflow` lists numbers out of range."""

    action: Action
    binding: Mapping[str, Any]
    choices: tuple[Choice, ...]
    guard: int
    changes: tuple[Change, ...]
    overflow: tuple[tuple[int, int, int], ...]


class Ground:
    """Grounds terms of one machine's vocabulary over one domain; instances are kept per action."""

    def __init__(self, machine: Machine, domain: ev.Domain) -> None:
        self.domain = domain
        self.cells = ev.cells(machine, domain)
        self.number = {cell: i for i, cell in enumerate(self.cells)}
        self.sorts = [machine.var(name).sort for name, _ in self.cells]
        self.values = [domain.of(sort) for sort in self.sorts]
        width = max(
            (sum(len(domain.of(p.sort)) for p in a.params if p.is_set) for a in machine.actions), default=0
        )
        self.count = len(self.cells)
        self.free = self.count + width
        # Cells: state, then free cells of set-valued parameters, then the state after a step.
        state = [(1 << len(v)) - 1 for v in self.values]
        self.formulas = Formulas(state + [BOOLEANS] * width + state)
        self.start = [
            self.values[i].index(machine.var(name).init.value) for i, (name, _) in enumerate(self.cells)
        ]
        self._names: dict[int, tuple[str, ...]] = {}
        self._memo: dict[tuple[Any, ...], Any] = {}
        self._alive: list[object] = []
        self._instances: dict[int, tuple[Action, tuple[Instance, ...]]] = {}

    def instances(self, action: Action) -> tuple[Instance, ...]:
        """All instances of an action whose guard is not plainly false."""
        found = self._instances.get(id(action))
        if found is None:
            found = self._instances[id(action)] = (action, tuple(self._instantiate(action)))
        return found[1]

    def _instantiate(self, action: Action) -> Iterable[Instance]:
        free = self.count
        members: dict[str, Any] = {}
        choices: list[Choice] = []
        for param in action.params:
            if param.is_set:
                elements = self._limited(param)
                members[param.name] = {e: free + i for i, e in enumerate(elements)}
                choices += [Choice(param.name, e, free + i) for i, e in enumerate(elements)]
                free += len(elements)
        scalars = [p for p in action.params if not p.is_set]
        for values in product(*(self._limited(p) for p in scalars)):
            binding = dict(zip((p.name for p in scalars), values, strict=True))
            instance = self._instance(action, binding, {**binding, **members}, tuple(choices))
            if instance is not None:
                yield instance

    def _limited(self, param: Param) -> tuple[Any, ...]:
        allowed = self.domain.choices.get(str(param.sort))
        return tuple(v for v in self.domain.of(param.sort) if allowed is None or v in allowed)

    def _instance(
        self,
        action: Action,
        binding: Mapping[str, Any],
        scope: Mapping[str, Any],
        choices: tuple[Choice, ...],
    ) -> Instance | None:
        f = self.formulas
        guard = f.tidy(f.conj([self.boolean(g.term, scope) for g in action.guards]))
        if guard == FALSE:
            return None
        known = f.known(guard)
        changes: list[Change] = []
        overflow: list[tuple[int, int, int]] = []
        for name, function in action.updates:
            names = [p.name for p in function.params]
            self._alive.append(function)
            for cell, (var, args) in enumerate(self.cells):
                if var != name:
                    continue
                local = {**scope, **dict(zip(names, args, strict=True))}
                memo: dict[int, int] = {}
                cases = {
                    value: node
                    for value, condition in self.cases(function.body, local).items()
                    if (node := f.assume(condition, known, memo)) != FALSE
                }
                for value in [v for v in cases if v not in self.values[cell]]:
                    overflow.append((cell, value, cases.pop(value)))
                if any(node != f.literal(cell, self.mask(cell, value)) for value, node in cases.items()):
                    changes.append(Change(cell, cases))
        return Instance(action, binding, choices, guard, tuple(changes), tuple(overflow))

    def mask(self, cell: int, value: Any) -> int:
        """The literal mask of one value of a cell."""
        return 1 << self.values[cell].index(value)

    def cases(self, term: t.Term, scope: Mapping[str, Any]) -> Cases:
        """The values a term can have, each with its formula."""
        result = self._ground(term, scope)
        if isinstance(result, dict):
            return result
        return {True: result, False: self.formulas.neg(result)}

    def boolean(self, term: t.Term, scope: Mapping[str, Any]) -> int:
        """The formula of a truth value."""
        self._alive.append(term)
        result = self._ground(term, scope)
        if isinstance(result, dict):
            raise DefinitionError(f"a truth value is needed, not {t.sort_of(term)}")
        return int(result)

    def _free_names(self, term: t.Term) -> tuple[str, ...]:
        found = self._names.get(id(term))
        if found is None:
            names: set[str] = set()
            match term:
                case t.Var(name):
                    names.add(name)
                case t.InSet(name, _):
                    names.add(name)
                case _:
                    pass
            for child in t.children(term):
                names.update(self._free_names(child))
            if isinstance(term, t.ForAll | t.Exists):
                names.difference_update(v.name for v in term.vars)
            found = self._names[id(term)] = tuple(sorted(names))
        return found

    def _ground(self, term: t.Term, scope: Mapping[str, Any]) -> Any:
        # Terms are kept alive by their owners, so that their ids name them; comparing trees would cost far more.
        key = (id(term), *(_hashable(scope[n]) for n in self._free_names(term)))
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._meaning(term, scope)
        return found

    def _meaning(self, term: t.Term, scope: Mapping[str, Any]) -> Any:
        f = self.formulas
        match term:
            case t.Lit(value, sort):
                return (TRUE if value else FALSE) if sort == BOOL else {value: TRUE}
            case t.Var(name, sort):
                return (TRUE if scope[name] else FALSE) if sort == BOOL else {scope[name]: TRUE}
            case t.Const(name):
                if name not in self.domain.constants:
                    raise DefinitionError(f"constant {name} has no value: give it one in the scope")
                return {self.domain.constants[name]: TRUE}
            case t.Read(var, args, sort, primed):
                return self._read(var, [self.cases(a, scope) for a in args], primed)
            case t.InSet(name, element):
                members = scope[name]
                if isinstance(members, frozenset):
                    return f.disj(c for v, c in self.cases(element, scope).items() if v in members)
                return f.disj(
                    f.conj((c, f.literal(members[v], 2)))
                    for v, c in self.cases(element, scope).items()
                    if v in members
                )
            case t.Not(arg):
                return f.neg(self._ground(arg, scope))
            case t.And(args):
                return f.conj(self._ground(a, scope) for a in args)
            case t.Or(args):
                return f.disj(self._ground(a, scope) for a in args)
            case t.Eq(left, right):
                one, two = self._ground(left, scope), self._ground(right, scope)
                if isinstance(one, dict):
                    return f.disj(f.conj((c, two[v])) for v, c in one.items() if v in two)
                return f.choose(one, two, f.neg(two))
            case t.Le(left, right):
                a, b = self.cases(left, scope), self.cases(right, scope)
                return f.disj(f.conj((c, d)) for v, c in a.items() for w, d in b.items() if v <= w)
            case t.Add(left, right):
                return self._combine(self.cases(left, scope), self.cases(right, scope), 1)
            case t.Sub(left, right):
                return self._combine(self.cases(left, scope), self.cases(right, scope), -1)
            case t.Ite(cond, then, other):
                test = self._ground(cond, scope)
                if test == TRUE:
                    return self._ground(then, scope)
                if test == FALSE:
                    return self._ground(other, scope)
                one, two = self._ground(then, scope), self._ground(other, scope)
                if not isinstance(one, dict):
                    return f.choose(test, one, two)
                return self._choose(test, one, two)
            case t.ForAll(variables, body):
                return f.conj(
                    self._ground(body, {**scope, **b}) for b in ev.assignments(variables, self.domain)
                )
            case t.Exists(variables, body):
                return f.disj(
                    self._ground(body, {**scope, **b}) for b in ev.assignments(variables, self.domain)
                )
            case _:
                assert_never(term)

    def _read(self, var: str, args: list[Cases], primed: bool) -> Any:
        f = self.formulas
        if all(len(a) == 1 for a in args):
            return self._cell(self.number[var, tuple(next(iter(a)) for a in args)], primed)
        result: Any = None
        for combination in product(*(a.items() for a in args)):
            here = f.conj(c for _, c in combination)
            if here == FALSE:
                continue
            value = self._cell(self.number[var, tuple(v for v, _ in combination)], primed)
            if result is None:
                result = value
            elif isinstance(value, dict):
                result = self._choose(here, value, result)
            else:
                result = f.choose(here, value, result)
        return result

    def _cell(self, cell: int, primed: bool) -> Any:
        f = self.formulas
        place = cell + self.free if primed else cell
        if isinstance(self.sorts[cell], BoolSort):
            return f.literal(place, 2)
        return {value: f.literal(place, 1 << i) for i, value in enumerate(self.values[cell])}

    def _choose(self, test: int, one: Cases, two: Cases) -> Cases:
        f = self.formulas
        cases = {v: f.choose(test, one.get(v, FALSE), two.get(v, FALSE)) for v in dict.fromkeys((*one, *two))}
        return {v: c for v, c in cases.items() if c != FALSE}

    def _combine(self, left: Cases, right: Cases, sign: int) -> Cases:
        f = self.formulas
        parts: dict[int, list[int]] = {}
        for v, c in left.items():
            for w, d in right.items():
                parts.setdefault(v + sign * w, []).append(f.conj((c, d)))
        cases = {v: f.disj(nodes) for v, nodes in parts.items()}
        return {v: c for v, c in cases.items() if c != FALSE}


def _hashable(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value
