"""The obligations of a ranking (see `ranking` for the rule that they add up to)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from vllm_lifecycle.spec.check.induction.obligations import (
    Body,
    Obligation,
    after,
    apart,
    of_action,
    per_action,
)
from vllm_lifecycle.spec.check.induction.ranking import Entry, Helpful, Ranking, SetEntry
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param

Step = Callable[[t.Term], t.Term]


def obligations(machine: Machine, ranking: Ranking, earlier: tuple[Ranking, ...]) -> Iterator[Obligation]:
    """All obligations of one ranking; `earlier` are those that it may lean on."""
    name = ranking.name

    def at(label: str, make: Callable[[], Body]) -> Obligation:
        return Obligation(name, "rank", label, None, make)

    opened = Body(ranking.params, (ranking.antecedent, t.neg(ranking.consequent)), ranking.pending)
    yield at("what is open is pending", lambda: opened)
    yield at("some step helps", partial(_some_step, machine, ranking))
    numbers = [e for e in ranking.rank if not isinstance(e, SetEntry)]
    low = t.conj(*(t.less_equal(t.integer(0), e) for e in numbers))
    yield at("the rank is not negative", lambda: Body(ranking.params, (ranking.pending,), low))
    reads = (
        t.reads(ranking.pending) | t.reads(ranking.consequent) | frozenset().union(*map(_reads, ranking.rank))
    )
    for obligation in per_action(machine, name, "rank", reads, partial(_keeps, ranking)):
        yield _relabel(obligation, "keeps")
    for number, step in enumerate(ranking.steps, 1):
        own = f"{number} {step.action}"
        for obligation in per_action(
            machine, name, "rank", reads | t.reads(step.when), partial(_stays, machine, ranking, step)
        ):
            yield _relabel(obligation, f"step {own} stays helpful")
        yield Obligation(
            name, "rank", f"step {own} helps", step.action, partial(_helps, machine, ranking, step)
        )
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
        fresh: dict[t.Var, t.Term] = {p.var: t.Var(f"{p.name}.some", p.sort) for p in left}
        ways.append(t.quantify(t.Exists, tuple(fresh.values()), t.substitute(step.when, fresh)))  # type: ignore[arg-type]
    return Body(ranking.params, (ranking.pending,), t.disj(*ways))


def _keeps(ranking: Ranking, action: Action) -> Body:
    params, (pending, consequent) = apart(ranking.params, action, ranking.pending, ranking.consequent)
    rank = _renamed(ranking, action)
    step = partial(after, action=action)
    lower, same = _lower(rank, step), _same(rank, step)
    goal = t.disj(step(consequent), t.conj(step(pending), t.disj(lower, same)))
    return of_action(action, params, (pending,), goal)


def _stays(machine: Machine, ranking: Ranking, helpful: Helpful, action: Action) -> Body:
    left = ranking.step_params(helpful, machine.action(helpful.action))
    own = (*ranking.params, *left)
    params, (pending, consequent, when) = apart(
        own, action, ranking.pending, ranking.consequent, helpful.when
    )
    step = partial(after, action=action)
    still = (t.neg(step(consequent)), _same(_renamed(ranking, action), step))
    return of_action(action, params, (pending, when, *still), step(when))


def _helps(machine: Machine, ranking: Ranking, helpful: Helpful) -> Body:
    action = machine.action(helpful.action)
    fixed = tuple(t.equal(t.Var(name, t.sort_of(term)), term) for name, term in _bound(action, helpful))
    step = partial(after, action=action)
    goal = t.disj(step(ranking.consequent), _lower(ranking.rank, step))
    return of_action(action, ranking.params, (*fixed, ranking.pending, helpful.when), goal)


def _bound(action: Action, helpful: Helpful) -> Iterator[tuple[str, t.Term]]:
    sorts = {p.name: p.sort for p in action.params}
    for name, term in helpful.bound:
        assert name in sorts
        yield name, term


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


def _renamed(ranking: Ranking, action: Action) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for entry in ranking.rank:
        if isinstance(entry, SetEntry):
            _, (member,) = apart(ranking.params, action, entry.member)
            entries.append(SetEntry(entry.params, member))
        else:
            entries.extend(apart(ranking.params, action, entry)[1])
    return tuple(entries)


def _same(rank: tuple[Entry, ...], step: Step) -> t.Term:
    return t.conj(*(_equal(entry, step) for entry in rank))


def _lower(rank: tuple[Entry, ...], step: Step) -> t.Term:
    """The rank after a step is lower: equal up to some entry, which is lower."""
    ways = [t.conj(_same(rank[:place], step), _less(entry, step)) for place, entry in enumerate(rank)]
    return t.disj(*ways)


def _equal(entry: Entry, step: Step) -> t.Term:
    if isinstance(entry, SetEntry):
        return _for_all(entry.params, t.equal(step(entry.member), entry.member))
    return t.equal(step(entry), entry)


def _less(entry: Entry, step: Step) -> t.Term:
    if isinstance(entry, SetEntry):
        now, then = entry.member, step(entry.member)
        lost = t.quantify(t.Exists, tuple(p.var for p in entry.params), t.conj(now, t.neg(then)))
        return t.conj(_for_all(entry.params, t.implies(then, now)), lost)
    return t.conj(t.less_equal(step(entry), entry), t.neg(t.equal(step(entry), entry)))


def _for_all(params: tuple[Param, ...], body: t.Term) -> t.Term:
    return t.quantify(t.ForAll, tuple(p.var for p in params), body)
