"""Claims compiled to plain Python over sparse states, for judging thousands of observed states a second.

The meaning is that of `evaluate`, which a test holds this module to. An observed state is sparse: per variable only the cells
that differ from the variable's initial value, and its individuals are whatever the observer calls them. A claim's parameters
are enumerated over such cells where a conjunct of its antecedent cannot hold at the initial value, so that a claim about
transfers costs nothing while there are none. Rejected: calling the reference evaluator on every state (50 times slower than a
scheduler under test); packing the observed state for `compiled` (its individuals would have to be numbered anew in each state).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import Context, Domain, evaluate
from vllm_lifecycle.spec.lang.expressions import Expressions, Names
from vllm_lifecycle.spec.lang.machine import Count, Machine, Param, Property
from vllm_lifecycle.spec.lang.sorts import EnumSort, Sort, UninterpretedSort

Cells = dict[tuple[Hashable, ...], Any]
Sparse = dict[str, Cells]
"""An observed state: per variable the cells that differ from its initial value."""
Binding = dict[str, Any]
Check = Callable[[Sparse, Sparse, Mapping[str, tuple[Hashable, ...]], Mapping[str, int]], list[Binding]]


@dataclass(frozen=True)
class Dense:
    """A sparse state as the reference evaluator reads it."""

    machine: Machine
    cells: Sparse

    def __getitem__(self, cell: tuple[str, tuple[Hashable, ...]]) -> Any:
        name, args = cell
        return self.cells.get(name, {}).get(args, self.machine.var(name).init.value)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("an observed state has no list of cells")

    def __len__(self) -> int:
        return sum(len(c) for c in self.cells.values())


def compile_claim(machine: Machine, claim: Property) -> Check:
    """A function of (state before, state after, individuals, constants) that gives the bindings at which it falls.

    For a claim about single states, before is the state to judge and after is not read.
    """
    writer = _Writer(machine, claim.params)
    lines: list[str] = []
    bound: set[str] = set()
    for read in _drivers(machine, claim):
        names = [a.name for a in read.args if isinstance(a, t.Var)]
        if bound & set(names):
            continue
        bound |= set(names)
        targets = "".join(f"{_local(n)}, " for n in names)
        lines.append(f"for ({targets}) in list({writer.cells(read)}):")
    lines += [
        f"for {_local(p.name)} in {writer.members(p.sort)}:" for p in claim.params if p.name not in bound
    ]
    lines.append(f"if ({writer.text(claim.antecedent)}) and not ({writer.text(claim.consequent)}):")
    found = "{" + ", ".join(f"{p.name!r}: {_local(p.name)}" for p in claim.params) + "}"
    return writer.function([*lines, f"out.append({found})"])


def compile_count(machine: Machine, count: Count) -> Check:
    """A function like that of a claim; a binding also says what the counter is and what was counted."""
    writer = _Writer(machine, (*count.args, count.over))
    counter = t.Read(count.counter, tuple(p.var for p in count.args), machine.var(count.counter).sort)
    loops = [f"for {_local(p.name)} in {writer.members(p.sort)}:" for p in count.args]
    over = f"for {_local(count.over.name)} in {writer.members(count.over.sort)}"
    found = ", ".join(f"{p.name!r}: {_local(p.name)}" for p in count.args)
    return writer.function(
        [
            *loops,
            f"is_, counted = {writer.text(counter)}, sum(int({writer.text(count.member)}) {over})",
            "if is_ != counted:",
            f"out.append({{{found + ', ' if found else ''}'is': is_, 'counted': counted}})",
        ]
    )


def _drivers(machine: Machine, claim: Property) -> Iterator[t.Read]:
    """Reads of the antecedent that must differ from their initial value for it to hold."""
    params = {p.name for p in claim.params}
    for part in t.conjuncts(claim.antecedent):
        reads = {n for n in t.walk(part) if isinstance(n, t.Read)}
        if len(reads) != 1:
            continue
        (read,) = reads
        names = [a.name for a in read.args if isinstance(a, t.Var) and a.name in params]
        if not names or len(names) != len(read.args) or len(set(names)) != len(names):
            continue
        if not _may_hold_idle(part, read, machine.var(read.var).init):
            yield read


def _may_hold_idle(part: t.Term, read: t.Read, init: t.Lit) -> bool:
    """Whether a conjunct could hold while its only read has the initial value."""
    idle = t.transform(part, lambda n: init if n == read else None)
    if t.free_vars(idle) or any(isinstance(n, t.Const) for n in t.walk(idle)):
        return True
    return bool(evaluate(idle, Context(Domain({}), {}), {}))


def _local(name: str) -> str:
    """A Python name for a variable of a term (bound ones are numbered with a dot)."""
    return "v_" + name.replace(".", "_")


class _Writer(Expressions):
    """Terms as Python expressions over `before`, `after`, `individuals`, `constants`."""

    def __init__(self, machine: Machine, params: tuple[Param, ...]) -> None:
        self.machine = machine
        self.values_by_name: dict[str, Any] = {}
        self.names = {p.name: _local(p.name) for p in params}

    def function(self, lines: list[str]) -> Check:
        """Nested lines (a line that ends with a colon opens a level) as a function with the result list `out`."""
        source, depth = ["def check(before, after, individuals, constants):", "    out = []"], 1
        for line in lines:
            source.append("    " * depth + line)
            depth += line.endswith(":")
        space: dict[str, Any] = dict(self.values_by_name)
        exec("\n".join([*source, "    return out"]), space)  # noqa: S102 - source made of our own terms
        check: Check = space["check"]
        return check

    def cells(self, read: t.Read) -> str:
        """The cells of a variable that differ from its initial value."""
        return f"{'after' if read.primed else 'before'}[{read.var!r}]"

    def text(self, term: t.Term) -> str:
        """A term over the parameters."""
        return self.expr(term, self.names)

    def literal(self, value: object, sort: Sort) -> str:
        """The value itself; members of an enumeration by a name of their own."""
        if isinstance(value, Enum):
            name = f"{type(value).__name__}_{value.name}"
            self.values_by_name[name] = value
            return name
        return repr(value)

    def constant(self, name: str) -> str:
        """Looked up when it is judged."""
        return f"constants[{name!r}]"

    def members(self, sort: Sort) -> str:
        """The individuals of the observation, or the members of an enumeration."""
        match sort:
            case UninterpretedSort(name):
                return f"individuals[{name!r}]"
            case EnumSort():
                return "(" + "".join(f"{self.literal(m, sort)}, " for m in sort.members) + ")"
            case _:
                raise TypeError(f"a claim that ranges over {sort} is not judged on observed states")

    def read(self, read: t.Read, names: Names) -> str:
        """The cell, or the initial value where nothing else was observed."""
        init = self.machine.var(read.var).init
        key = "(" + "".join(f"{self.expr(a, names)}, " for a in read.args) + ")"
        return f"{self.cells(read)}.get({key}, {self.literal(init.value, init.sort)})"

    def in_set(self, chosen: str, element: str) -> str:
        """No property has a set-valued parameter."""
        raise TypeError("a claim with a set-valued parameter is not judged on observed states")

    def bound_name(self, var: t.Var) -> str:
        """Its own: bound variables are numbered apart."""
        return _local(var.name)


def parameters(params: tuple[Param, ...], binding: Binding) -> str:
    """A binding in words."""
    return ", ".join(f"{p.name} = {getattr(binding[p.name], 'name', binding[p.name])}" for p in params)
