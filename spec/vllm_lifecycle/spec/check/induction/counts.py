"""Count lemmas: a counter equals a number of individuals, or a sum over them, shown by what each action changes.

`counter(a) = sum over x of weight(a, x)` is no first-order claim (the weight of a condition is 1 where it holds, else 0), but
its change by one action is. Given that the counter is exact before, it is exact after if, for every `a`, the action
does one of these:
- it leaves all weights and the counter alone;
- it changes weights at most at some of its own parameters, and the counter by exactly the sum of those changes;
- it makes all weights 0, and the counter 0.
Over an enum sort the sum is a plain term, and the lemma a plain claim.

What an exact count says of one state is given back to all proofs: the counter is not negative; it is at least the weight
of one individual, and of two together; a positive counter has an individual of positive weight; one above the weight of
an action's or claim's parameter has another one. The last two put an existential below the counter's arguments; they
are left out where that would close a cycle of alternations. All of this needs weights that are not negative, which is
shown, and the sort counted over to be finite, which is an assumption of the verdict. A counter of individuals whose
upper end is a constant that no guard, update or property reads needs no upper bound shown: it is at most the size of
the sort counted over, and the constant has to be at least that (an assumption of the verdict too). Rejected: set
cardinality inside the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations

from vllm_lifecycle.spec.check.induction.ground import Ground, Sym, World, equality, ground, printed
from vllm_lifecycle.spec.check.induction.obligations import (
    INITIALLY,
    Assumption,
    Body,
    Claim,
    Obligation,
    after,
    apart,
    at_start,
    of_action,
    per_action,
)
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.evaluate import assignments
from vllm_lifecycle.spec.lang.machine import Action, Count, Machine, Param
from vllm_lifecycle.spec.lang.sorts import BOOL, EnumSort, IntSort, UninterpretedSort


def count_claim(count: Count) -> str:
    """The name of the claim that a counter is exact."""
    return f"{count.counter} is the number it counts"


def counter_of(machine: Machine, count: Count) -> t.Term:
    """The read of the counter at the count's arguments."""
    return t.Read(count.counter, tuple(p.var for p in count.args), machine.var(count.counter).sort)


def is_sum(count: Count) -> bool:
    """Whether the count runs over the members of an enum, so that it is a plain sum."""
    return isinstance(count.over.sort, EnumSort)


def weight(count: Count, place: t.Term | None = None) -> t.Term:
    """What the individual at `place` (the count's own variable by default) adds to the counter."""
    term = count.member if place is None else t.substitute(count.member, {count.over.var: place})
    return t.ite(term, t.integer(1), t.integer(0)) if t.sort_of(term) == BOOL else term


def sum_claim(machine: Machine, count: Count) -> Claim:
    """The count over an enum as a claim about every state."""
    assert isinstance(count.over.sort, EnumSort)
    total = _sum(weight(count, t.member(m)) for m in count.over.sort.members)
    return Claim(count_claim(count), "count", count.args, t.TRUE, t.equal(counter_of(machine, count), total))


def _sum(terms: Iterable[t.Term]) -> t.Term:
    total: t.Term = t.integer(0)
    for term in terms:
        total = t.add(total, term)
    return total


Allowed = Callable[[t.Term], bool]
"""Whether a further assumption closes no cycle of alternations."""


def consequences(machine: Machine, count: Count, allowed: Allowed) -> Iterator[Assumption]:
    """What an exact count over an uninterpreted sort says of one state."""
    counter, name = counter_of(machine, count), count_claim(count)
    args = tuple(p.var for p in count.args)
    x = count.over.var
    y = t.Var(f"{x.name}.other", x.sort)
    other = t.neg(t.equal(x, y))
    at_x, at_y = weight(count), weight(count, y)
    one = t.integer(1)
    universal = {
        "not negative": (args, t.less_equal(t.integer(0), counter)),
        "at least the weight of one": ((*args, x), t.less_equal(at_x, counter)),
        "at least the weight of two": (
            (*args, x, y),
            t.implies(other, t.less_equal(t.add(at_x, at_y), counter)),
        ),
    }
    somebody = t.Exists((x,), t.less_equal(one, at_x))
    existential = {"positive through somebody": (args, t.implies(t.less_equal(one, counter), somebody))}
    for label, (variables, body) in (universal | existential).items():
        term = t.quantify(t.ForAll, variables, body)
        if label in universal or allowed(term):
            yield Assumption(f"{name}: {label}", name, term, reads(count))


def beside(machine: Machine, count: Count, params: Iterable[Param], allowed: Allowed) -> Iterator[Assumption]:
    """What an exact count says beside some individuals: a counter above the weight of one has another one.

    For all individuals at once this would let the solver build new ones for ever.
    """
    counter, name = counter_of(machine, count), count_claim(count)
    y = t.Var(f"{count.over.name}.other", count.over.sort)
    for param in params:
        if param.sort == count.over.sort and not param.is_set:
            another = t.conj(t.neg(t.equal(param.var, y)), t.less_equal(t.integer(1), weight(count, y)))
            body = t.disj(t.less_equal(counter, weight(count, param.var)), t.Exists((y,), another))
            term = t.quantify(t.ForAll, tuple(p.var for p in count.args), body)
            if allowed(term):
                yield Assumption(f"{name}: more than {param.name}", name, term, reads(count))


def reads(count: Count) -> frozenset[str]:
    """The counter and the state that it counts."""
    return t.reads(count.member) | {count.counter}


def exactly(machine: Machine, count: Count, world: World) -> Iterator[Ground]:
    """The count itself, in a state with finitely many named individuals."""
    for args in assignments(tuple(p.var for p in count.args), world.domain):
        here = world.bind(args)
        names = world.domain.of(count.over.sort)
        weights = [printed(ground(weight(count), here.bind({count.over.name: x}))) for x in names]
        yield equality(ground(counter_of(machine, count), here), Sym(f"(+ 0 {' '.join(weights)})"))


def obligations(machine: Machine, count: Count) -> Iterator[Obligation]:
    """Exactness at the start and the delta lemma of each action, for a count over an uninterpreted sort."""
    name, counter = count_claim(count), counter_of(machine, count)
    own, zero = (*count.args, count.over), t.integer(0)

    def nothing() -> Body:
        return Body(
            own, (), t.conj(*(t.equal(at_start(term, machine), zero) for term in (weight(count), counter)))
        )

    def kept(action: Action) -> Body:
        params, (each, number) = apart(own, action, weight(count), counter)
        return of_action(action, params[:-1], (), _exact_after(action, params[-1], each, number))

    yield Obligation(name, "initiation", INITIALLY, None, nothing)
    if t.sort_of(count.member) != BOOL:
        body = Body(own, (), t.less_equal(zero, count.member))
        yield Obligation(name, "count", "no weight is negative", None, lambda: body)
    yield from per_action(machine, name, "count", reads(count), kept)


def _exact_after(action: Action, over: Param, each: t.Term, counter: t.Term) -> t.Term:
    """That the counter stays exact: one of the three ways of the module's head, for these arguments."""
    each_after, counter_after = after(each, action), after(counter, action)
    # The bound variable gets a name that no parameter can have.
    bound = t.Var(f"{over.name}.any", over.sort)

    def at(term: t.Term, place: t.Term) -> t.Term:
        return t.substitute(term, {over.var: place})

    gone = t.quantify(t.ForAll, (bound,), t.equal(at(each_after, bound), t.integer(0)))
    ways = [t.conj(gone, t.equal(counter_after, t.integer(0)))]
    own = [p.var for p in action.params if p.sort == over.sort and not p.is_set]
    for places in _subsets(own):
        elsewhere = t.conj(*(t.neg(t.equal(bound, p)) for p in places))
        same = t.equal(at(each_after, bound), at(each, bound))
        gained = _sum(at(each_after, p) for p in places)
        lost = _sum(at(each, p) for p in places)
        different = t.conj(*(t.neg(t.equal(p, q)) for p, q in combinations(places, 2)))
        exact = t.equal(t.add(counter_after, lost), t.add(counter, gained))
        ways.append(t.conj(different, t.quantify(t.ForAll, (bound,), t.implies(elsewhere, same)), exact))
    return t.disj(*ways)


def _subsets(places: list[t.Var]) -> Iterable[tuple[t.Var, ...]]:
    return (c for n in range(min(len(places), 2) + 1) for c in combinations(places, n))


def capacities(machine: Machine) -> dict[str, str]:
    """Counters, each with the constant that bounds it and nothing else: it only has to be as large as the sort counted over."""
    terms = [f.body for a in machine.actions for _, f in a.updates]
    terms += [a.guard for a in machine.actions] + [p.body for p in machine.properties]
    read = {n.name for term in terms for n in t.walk(term) if isinstance(n, t.Const)}
    found: dict[str, str] = {}
    for count in over_individuals(machine):
        sort = machine.var(count.counter).sort
        if t.sort_of(count.member) != BOOL or not isinstance(sort, IntSort):
            continue
        if isinstance(sort.high, str) and sort.high not in read:
            found[count.counter] = sort.high
    return found


def over_individuals(machine: Machine) -> tuple[Count, ...]:
    """The counts that need delta lemmas."""
    return tuple(c for c in machine.counts if isinstance(c.over.sort, UninterpretedSort))


def over_enums(machine: Machine) -> tuple[Count, ...]:
    """The counts that are plain sums."""
    return tuple(c for c in machine.counts if is_sum(c))
