"""Python code from terms: generators of arguments that satisfy conditions, and functions that take a step.

Rules of the generated code: a condition is tested as soon as the parameters that it reads are bound; a condition of the
form `for all x: chosen[x] -> ...` bounds the subsets that are tried for `chosen`; a point update writes its point only.
Rejected: unrolling quantifiers (the code grows with the scope) and closures per node (five times slower).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import count
from typing import Any

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.expressions import Expressions, Names
from vllm_lifecycle.spec.lang.machine import Action, Param
from vllm_lifecycle.spec.lang.packed import Arguments, Layout, Packed
from vllm_lifecycle.spec.lang.sorts import DefinitionError, Sort

Finder = Callable[[Packed, Packed | None], Iterator[Arguments]]


@cache
def submasks(mask: int) -> tuple[int, ...]:
    """All subsets of a bit mask, smaller ones first."""
    found, sub = [0], mask
    while sub:
        found.append(sub)
        sub = (sub - 1) & mask
    return tuple(sorted(found, key=lambda m: (m.bit_count(), m)))


def parts_of(term: t.Term) -> tuple[t.Term, ...]:
    """Conjuncts of a condition, also those of a denied disjunction."""
    match term:
        case t.And(args):
            return tuple(part for arg in args for part in parts_of(arg))
        case t.Not(t.Or(args)):
            return tuple(part for arg in args for part in parts_of(t.neg(arg)))
        case _:
            return (term,)


def _needs(term: t.Term) -> frozenset[str]:
    sets = {n.set_name for n in t.walk(term) if isinstance(n, t.InSet)}
    return frozenset(v.name for v in t.free_vars(term)) | sets


class Emitter(Expressions):
    """Writes the code of one function."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self._fresh = count()

    def _name(self) -> str:
        return f"v{next(self._fresh)}"

    def _write(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def _compile(self, head: str) -> Any:
        source = "\n".join([head, *self.lines])
        space: dict[str, Any] = {"submasks": submasks}
        exec(compile(source, "<terms>", "exec"), space)  # noqa: S102 - the source is made of terms alone
        return space["run"]

    # functions

    def finder(
        self, params: tuple[Param, ...], parts: tuple[t.Term, ...], chosen: Mapping[str, tuple[int, ...]]
    ) -> Finder:
        """A generator of the arguments that satisfy all parts; sets are chosen last, each after those it refers to."""
        names: dict[str, str] = {}
        waiting, depth = self._test(parts, names, 1)
        for param in sorted(params, key=lambda p: p.is_set):
            name = self._name()
            if param.is_set:
                bounds, waiting = _bounds(param, waiting, names)
                element = self._name()
                inner = {**names, param.name: name}
                tests = [
                    self.expr(t.substitute(b, {v: t.Var(element, v.sort)}), {**inner, element: element})
                    for v, b in bounds
                ]
                condition = f" if {' and '.join(tests)}" if tests else ""
                every = self.layout.codes(param.sort)
                self._write(
                    depth,
                    f"for {name} in submasks(sum([1 << {element} for {element} in {every}{condition}])):",
                )
            else:
                values = chosen.get(param.name) or self.layout.codes(param.sort)
                self._write(depth, f"for {name} in {values}:")
            names[param.name] = name
            waiting, depth = self._test(waiting, names, depth + 1)
        assert not waiting, "a condition speaks of an unknown parameter"
        self._write(depth, f"yield ({''.join(names[p.name] + ', ' for p in params)})")
        found: Finder = self._compile("def run(s, t=None):")
        return found

    def _test(
        self, parts: tuple[t.Term, ...], names: Mapping[str, str], depth: int
    ) -> tuple[tuple[t.Term, ...], int]:
        """Test what can be tested; answers the parts that must wait, and the depth inside the tests."""
        ready = [p for p in parts if _needs(p) <= names.keys()]
        if ready:
            self._write(depth, f"if {' and '.join(self.expr(p, names) for p in ready)}:")
            depth += 1
        return tuple(p for p in parts if p not in ready), depth

    def stepper(self, action: Action) -> Callable[[Packed, Arguments], list[int]]:
        """A function from a state and arguments to the numbers of the state after."""
        names = {p.name: self._name() for p in action.params}
        if names:
            self._write(1, f"{', '.join(names.values())}, = a")
        self._write(1, "n = list(s)")
        for var, function in action.updates:
            self._assign(var, function.params, function.body, names)
        self._write(1, "return n")
        run: Callable[[Packed, Arguments], list[int]] = self._compile("def run(s, a):")
        return run

    def _assign(self, var: str, params: tuple[t.Var, ...], body: t.Term, names: dict[str, str]) -> None:
        """Assignments of one variable: the last branch of a case split first, so that earlier branches win."""
        known: dict[str, str] = {}
        tests: list[t.Term] = []
        match body:
            case t.Read(var=name, args=args, primed=False) if name == var and args == params:
                return
            case t.Ite(cond, then, other):
                self._assign(var, params, other, names)
                for part in t.conjuncts(cond):
                    match part:
                        case t.Eq(t.Var() as place, at) if (
                            place in params and place.name not in known and not t.free_vars(at) & set(params)
                        ):
                            known[place.name] = self.expr(at, names)
                        case _:
                            tests.append(part)
            case _:
                then = body
        depth, local = 1, dict(names)
        for param in params:
            local[param.name] = self._name()
            values = f"({known[param.name]},)" if param.name in known else str(self.layout.codes(param.sort))
            self._write(depth, f"for {local[param.name]} in {values}:")
            depth += 1
        if tests:
            self._write(depth, f"if {' and '.join(self.expr(p, local) for p in tests)}:")
            depth += 1
        self._write(depth, f"n[{self._index(var, params, local)}] = {self.expr(then, local)}")

    # terms

    def literal(self, value: object, sort: Sort) -> str:
        """Its code."""
        return str(self.layout.code(sort, value))

    def constant(self, name: str) -> str:
        """Its number; DefinitionError when the scope gives none."""
        if name not in self.layout.domain.constants:
            raise DefinitionError(f"constant {name} has no value: give it one in the scope")
        return str(self.layout.domain.constants[name])

    def members(self, sort: Sort) -> str:
        """The codes of the sort."""
        return str(self.layout.codes(sort))

    def read(self, read: t.Read, names: Names) -> str:
        """A place of the packed state."""
        return f"{'t' if read.primed else 's'}[{self._index(read.var, read.args, names)}]"

    def in_set(self, chosen: str, element: str) -> str:
        """A bit of the mask."""
        return f"({chosen} >> {element} & 1)"

    def bound_name(self, var: t.Var) -> str:
        """A fresh one."""
        return self._name()

    def _index(self, var: str, args: tuple[t.Term, ...], names: Names) -> str:
        offset, strides = self.layout.place(var)
        moved = [str(offset)] if offset or not args else []
        for arg, stride in zip(args, strides, strict=True):
            at = self.expr(arg, names)
            moved.append(at if stride == 1 else f"{at} * {stride}")
        return " + ".join(moved)


def _bounds(
    param: Param, parts: tuple[t.Term, ...], names: Mapping[str, str]
) -> tuple[list[tuple[t.Var, t.Term]], tuple[t.Term, ...]]:
    """Conditions on the members of a set, from parts `for all x: set[x] -> condition`; and the other parts."""
    bounds: list[tuple[t.Var, t.Term]] = []
    others: list[t.Term] = []
    for part in parts:
        match part:
            case t.ForAll((x,), t.Or((t.Not(t.InSet(name, element)), *rest))) if (
                name == param.name and element == x and _needs(t.disj(*rest)) <= {*names, x.name}
            ):
                bounds.append((x, t.disj(*rest)))
            case _:
                others.append(part)
    return bounds, tuple(others)
