"""Quantifier alternation: which sorts the solver may have to build new individuals of, and that it never has to for ever."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import BOOL, DefinitionError, UninterpretedSort


def alternations(term: t.Term, positive: bool = True) -> frozenset[tuple[str, str]]:
    """Edges `universal sort -> existential sort` that Skolemisation of the (asserted) term needs.

    A set of formulas whose union of edges has no cycle over uninterpreted sorts is decidable: the solver cannot be
    sent to build new individuals for ever. Enum sorts are finite and do not count.
    """
    edges: set[tuple[str, str]] = set()

    def visit(node: t.Term, sign: bool, universal: frozenset[str]) -> None:
        match node:
            case t.ForAll(variables, body) | t.Exists(variables, body):
                names = {v.sort.name for v in variables if isinstance(v.sort, UninterpretedSort)}
                if isinstance(node, t.ForAll) == sign:
                    visit(body, sign, universal | names)
                else:
                    edges.update((u, n) for u in universal for n in names)
                    visit(body, sign, universal)
            case t.Not(arg):
                visit(arg, not sign, universal)
            case t.Eq(left, right) if t.sort_of(left) == BOOL:
                for side in (left, right):
                    visit(side, True, universal)
                    visit(side, False, universal)
            case t.Ite(cond, then, other):
                visit(cond, True, universal)
                visit(cond, False, universal)
                visit(then, sign, universal)
                visit(other, sign, universal)
            case _:
                for child in t.children(node):
                    visit(child, sign, universal)

    visit(term, positive, frozenset())
    return frozenset(edges)


def alternation_edges(machine: Machine) -> dict[tuple[str, str], str]:
    """Edges of the quantifier alternation graph, each with a definition that causes it."""
    causes: dict[tuple[str, str], str] = {}
    for prop in machine.properties:
        if prop.kind == "state":
            for edge in alternations(prop.closed):
                causes.setdefault(edge, prop.name)
    for action in machine.actions:
        for edge in alternations(action.guard):
            causes.setdefault(edge, action.name)
    return causes


def check_alternations(machine: Machine) -> None:
    """Reject a cycle of forall-exists between uninterpreted sorts."""
    causes = alternation_edges(machine)
    cycle = find_cycle(causes)
    if cycle:
        steps = ", ".join(f"{a} -> {b} ({causes[a, b]})" for a, b in pairwise(cycle))
        raise DefinitionError(
            f"the quantifiers alternate in a cycle: {steps}: state one of them by a relation or a ghost instead of 'there is'"
        )


def find_cycle(graph: Iterable[tuple[str, str]]) -> list[str]:
    """A cycle of a directed graph as a closed list of nodes, or an empty list."""
    following: dict[str, list[str]] = {}
    for a, b in graph:
        following.setdefault(a, []).append(b)
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in following.get(node, []):
            cycle = visit(other, [*path, node])
            if cycle:
                return cycle
        done.add(node)
        return []

    for node in list(following):
        cycle = visit(node, [])
        if cycle:
            return cycle
    return []
