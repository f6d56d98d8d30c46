"""Stuttering: a claim about steps must hold of a step that changes nothing of what it reads.

Otherwise a machine that leaves out some state would have to keep every action, since each may be the step that changes
nothing else; with the rule, projections and slices keep only the actions that assign something. The claim with "after" read
as "before" is decided by cases over its atoms; what lies below a quantifier is one atom. That is enough for claims of the
form "what changed, changed rightly", and a claim that it cannot decide is rejected with the repair.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.sorts import BOOL


def allows_stuttering(claim: t.Term) -> bool:
    """Whether a claim about steps is found to hold when nothing changes."""
    return _valid(t.transform(claim, _unprimed))


def _unprimed(node: t.Term) -> t.Term | None:
    return t.Read(node.var, node.args, node.sort) if isinstance(node, t.Read) and node.primed else None


def _valid(term: t.Term) -> bool:
    if term in (t.TRUE, t.FALSE):
        return term == t.TRUE
    atom = _atom(term)
    return all(_valid(_assume(term, atom, holds)) for holds in (True, False))


def _atom(term: t.Term) -> t.Term:
    """Some condition that the term depends on and that has no conditions in it."""
    match term:
        case t.Not(arg):
            return _atom(arg)
        case t.And(args) | t.Or(args):
            return _atom(args[0])
        case t.Ite(cond, _, _):
            return _atom(cond)
        case t.Eq(left, right) if t.sort_of(left) == BOOL:
            return _atom(right if isinstance(left, t.Lit) else left)
        case _:
            return term


def _assume(term: t.Term, atom: t.Term, holds: bool) -> t.Term:
    """The term where the atom holds, or does not; a cell that has one value does not have another."""
    if term == atom:
        return t.boolean(holds)
    match term, atom:
        case t.Eq(x, t.Lit() as one), t.Eq(y, t.Lit() as two) if holds and x == y and one != two:
            return t.FALSE
        case ((t.ForAll() | t.Exists()), _):
            return term
        case _:
            return t.rebuild(term, tuple(_assume(c, atom, holds) for c in t.children(term)))
