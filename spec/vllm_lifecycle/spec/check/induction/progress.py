"""The obligations of a ranking (see `ranking` for the rule that they add up to)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from vllm_lifecycle.spec.check.induction.obligations import (
    Body,
    Obligation,
    after,
    apart,
    of_action,
    per_action,
)
from vllm_lifecycle.spec.check.induction.ranking import Entry, Helpful, Ranking, SetEntry, is_fair_enough
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param


def obligations(machine: Machine, ranking: Ranking, earlier: tuple[Ranking, ...]) -> Iterator[Obligation]:
    """All obligations of one ranking; `earlier` are those that it may lean on."""
    name = ranking.name
    known: dict[str, _Move] = {}

    def moves(action: Action) -> _Move:
        if action.name not in known:
            known[action.name] = _move(ranking, action)
        return known[action.name]

    def at(label: str, make: Callable[[], Body]) -> Obligation:
        return Obligation(name, "rank", label, None, make)

    def keeps(action: Action) -> Body:
        move = moves(action)
        goal = t.disj(move.consequent, t.conj(move.pending_after, t.disj(_lower(move.entries), move.same)))
        return of_action(action, move.params, (move.pending,), goal)

    def stays(step: Helpful, action: Action) -> Body:
        move = moves(action)
        left, (when,) = apart(ranking.step_params(step, machine.action(step.action)), action, step.when)
        when = t.substitute(when, move.renaming)
        still = (t.neg(move.consequent), move.same)
        return of_action(action, (*move.params, *left), (move.pending, when, *still), after(when, action))

    def helps(step: Helpful) -> Body:
        action = machine.action(step.action)
        move = moves(action)
        fixed = tuple(
            t.equal(t.Var(n, t.sort_of(term)), t.substitute(term, move.renaming)) for n, term in step.bound
        )
        when = t.substitute(step.when, move.renaming)
        goal = t.disj(move.consequent, _lower(move.entries))
        return of_action(action, move.params, (*fixed, move.pending, when), goal)

    opened = Body(ranking.params, (ranking.antecedent, t.neg(ranking.consequent)), ranking.pending)
    yield at("what is open is pending", lambda: opened)
    yield at("some step helps", partial(_some_step, machine, ranking))
    numbers = [e for e in ranking.rank if not isinstance(e, SetEntry)]
    low = t.conj(*(t.less_equal(t.integer(0), e) for e in numbers))
    yield at("the rank is not negative", lambda: Body(ranking.params, (ranking.pending,), low))
    reads = (
        t.reads(ranking.pending) | t.reads(ranking.consequent) | frozenset().union(*map(_reads, ranking.rank))
    )
    for obligation in per_action(machine, name, "rank", reads, keeps):
        yield _relabel(obligation, "keeps")
    for number, step in enumerate(ranking.steps, 1):
        own = f"{number} {step.action}"
        for obligation in per_action(machine, name, "rank", t.reads(step.when), partial(stays, step)):
            yield _relabel(obligation, f"step {own} stays helpful")
        yield Obligation(name, "rank", f"step {own} helps", step.action, partial(helps, step))
        yield at(f"step {own} is fair", partial(_fair, machine, ranking, step))
        for label, body in _enabled(machine, ranking, step, earlier).items():
            yield at(f"step {own} {label}", body)


def _relabel(obligation: Obligation, what: str) -> Obligation:
    label = f"{what}: {obligation.label}"
    return Obligation(
        obligation.claim, obligation.kind, label, obligation.action, obligation.make, obligation.frame
    )


def _reads(entry: Entry) -> frozenset[str]:
    return t.reads(entry.member if isinstance(entry, SetEntry) else entry)


def _some_step(machine: Machine, ranking: Ranking) -> Body:
    ways: list[t.Term] = []
    for step in ranking.steps:
        left = ranking.step_params(step, machine.action(step.action))
        # Bound names have a dot, parameters have none: nothing is captured.
        fresh = {p.var: t.Var(f"{p.name}.some", p.sort) for p in left}
        ways.append(t.quantify(t.Exists, tuple(fresh.values()), t.substitute(step.when, fresh)))
    return Body(ranking.params, (ranking.pending,), t.disj(*ways))


@dataclass(frozen=True)
class _Move:
    """What an action makes of a ranking: its terms renamed apart from the action's parameters, before and after."""

    params: tuple[Param, ...]
    renaming: dict[t.Var, t.Term]
    pending: t.Term
    pending_after: t.Term
    consequent: t.Term
    entries: tuple[_Change, ...]

    @cached_property
    def same(self) -> t.Term:
        """The rank is the same before and after."""
        return t.conj(*(e.same for e in self.entries))


@dataclass(frozen=True)
class _Change:
    """That an entry of the rank is the same after a step, and that it is lower."""

    same: t.Term
    less: t.Term


def _move(ranking: Ranking, action: Action) -> _Move:
    params, (pending, consequent) = apart(ranking.params, action, ranking.pending, ranking.consequent)
    renaming: dict[t.Var, t.Term] = {
        p.var: q.var for p, q in zip(ranking.params, params, strict=True) if p != q
    }
    step = partial(after, action=action)
    entries = tuple(_change(entry, renaming, step) for entry in ranking.rank)
    return _Move(params, renaming, pending, step(pending), step(consequent), entries)


def _change(entry: Entry, renaming: dict[t.Var, t.Term], step: Callable[[t.Term], t.Term]) -> _Change:
    term = t.substitute(entry.member if isinstance(entry, SetEntry) else entry, renaming)
    then = step(term)
    if not isinstance(entry, SetEntry):
        return _Change(t.equal(then, term), t.neg(t.less_equal(term, then)))
    variables = tuple(p.var for p in entry.params)
    lost = t.quantify(t.Exists, variables, t.conj(term, t.neg(then)))
    kept = t.quantify(t.ForAll, variables, t.implies(then, term))
    return _Change(t.quantify(t.ForAll, variables, t.equal(then, term)), t.conj(kept, lost))


def _lower(entries: tuple[_Change, ...]) -> t.Term:
    """The rank after a step is lower: equal up to some entry, which is lower."""
    ways = [t.conj(*(e.same for e in entries[:place]), entry.less) for place, entry in enumerate(entries)]
    return t.disj(*ways)


def _fair(machine: Machine, ranking: Ranking, helpful: Helpful) -> Body:
    """The fairness is that of this machine: a variant may have taken it away."""
    goal = t.boolean(is_fair_enough(machine.action(helpful.action), helpful.after))
    return Body(ranking.params, (ranking.pending,), goal)


def _enabled(
    machine: Machine, ranking: Ranking, helpful: Helpful, earlier: tuple[Ranking, ...]
) -> dict[str, Callable[[], Body]]:
    action = machine.action(helpful.action)
    params = (*ranking.params, *ranking.step_params(helpful, action))

    def enabled() -> t.Term:
        guard = _with_sets(action.guard, helpful)
        return t.substitute(
            guard, {t.Var(n, next(p.sort for p in action.params if p.name == n)): v for n, v in helpful.bound}
        )

    def body(hypotheses: tuple[t.Term, ...], alternative: t.Term) -> Body:
        return Body(params, (ranking.pending, helpful.when, *hypotheses), t.disj(alternative, enabled()))

    if helpful.after is None:
        return {"is enabled": partial(body, (), t.FALSE)}
    lemma = next(r for r in earlier if r.name == helpful.after)
    given = dict(helpful.given)
    mapping = {p.var: given[p.name] for p in lemma.params}
    before, then = (t.substitute(term, mapping) for term in (lemma.antecedent, lemma.consequent))
    return {
        f"is enabled or starts {lemma.name}": partial(body, (), before),
        f"is enabled at the end of {lemma.name}": partial(body, (then,), t.FALSE),
    }


def _with_sets(term: t.Term, helpful: Helpful) -> t.Term:
    sets = {name: (element, condition) for name, element, condition in helpful.sets}

    def leaf(node: t.Term) -> t.Term | None:
        if isinstance(node, t.InSet):
            element, condition = sets[node.set_name]
            return t.substitute(condition, {element: node.element})
        return None

    return t.transform(term, leaf)
