"""Count lemmas: a counter equals a number of individuals, shown by what each action adds or takes away.

`counter(a) = |{x : member(a, x)}|` is no first-order claim, but its change by one action is. Given that the counter is exact
before, it is exact after if, for every `a`, the action does one of these:
- it leaves all memberships and the counter alone;
- it changes membership at most at some of its own parameters, and the counter by exactly the sum of those changes;
- it makes all memberships false, and the counter 0.
Over an enum sort the number is a plain sum, and the lemma a plain claim.

What an exact count says of one state is given back to all proofs: the counter is not negative; a member makes it at least 1,
two members at least 2; a positive counter has a member, one above 1 has another one beside each member. The last two put an
existential below the counter's arguments; they are left out where that would close a cycle of alternations. All of this needs
the sort counted over to be finite, which is an assumption of the verdict. A counter whose upper end is a constant that no
guard, update or property reads needs no upper bound shown: it is at most the size of the sort counted over, and the
constant has to be at least that (an assumption of the verdict too). Rejected: set cardinality inside the solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from vllm_lifecycle.spec.check.induction.obligations import (
    INITIALLY,
    Assumption,
    Claim,
    Obligation,
    after,
    apart,
    at_start,
    framed,
    of_action,
)
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Count, Machine, Param
from vllm_lifecycle.spec.lang.sorts import EnumSort, IntSort, UninterpretedSort
from vllm_lifecycle.spec.lang.wellformed import alternation_edges, find_cycle


def count_claim(count: Count) -> str:
    """The name of the claim that a counter is exact."""
    return f"{count.counter} is the number it counts"


def counter_of(machine: Machine, count: Count) -> t.Term:
    """The read of the counter at the count's arguments."""
    return t.Read(count.counter, tuple(p.var for p in count.args), machine.var(count.counter).sort)


def is_sum(count: Count) -> bool:
    """Whether the count runs over the members of an enum, so that it is a plain sum."""
    return isinstance(count.over.sort, EnumSort)


def sum_claim(machine: Machine, count: Count) -> Claim:
    """The count over an enum as a claim about every state."""
    assert isinstance(count.over.sort, EnumSort)
    terms = [t.substitute(count.member, {count.over.var: t.member(m)}) for m in count.over.sort.members]
    total = _sum(terms)
    return Claim(count_claim(count), "count", count.args, t.TRUE, t.equal(counter_of(machine, count), total))


def _sum(conditions: Iterable[t.Term]) -> t.Term:
    """How many of some conditions hold."""
    total: t.Term = t.integer(0)
    for condition in conditions:
        total = t.add(total, t.ite(condition, t.integer(1), t.integer(0)))
    return total


def consequences(machine: Machine, count: Count) -> Iterator[Assumption]:
    """What an exact count over an uninterpreted sort says of one state."""
    counter, name = counter_of(machine, count), count_claim(count)
    args = tuple(p.var for p in count.args)
    x = count.over.var
    y = t.Var(f"{x.name}.other", x.sort)
    at_x, at_y = count.member, t.substitute(count.member, {x: y})
    two = t.conj(at_x, at_y, t.neg(t.equal(x, y)))
    universal = {
        "not negative": (args, t.less_equal(t.integer(0), counter)),
        "a member makes it 1": ((*args, x), t.implies(at_x, t.less_equal(t.integer(1), counter))),
        "two members make it 2": ((*args, x, y), t.implies(two, t.less_equal(t.integer(2), counter))),
    }
    another = t.Exists((y,), t.conj(at_y, t.neg(t.equal(x, y))))
    existential = {
        "1 has a member": (args, t.implies(t.less_equal(t.integer(1), counter), t.Exists((x,), at_x))),
        "2 has another member": (
            (*args, x),
            t.implies(t.conj(at_x, t.less_equal(t.integer(2), counter)), another),
        ),
    }
    reads = t.reads(count.member) | {count.counter}
    edges = set(alternation_edges(machine))
    for label, (variables, body) in (universal | existential).items():
        term = t.quantify(t.ForAll, variables, body)
        new = edges | t.alternations(term)
        if label in universal or not find_cycle(new):
            edges = new
            yield Assumption(f"{name}: {label}", name, term, reads)


def obligations(machine: Machine, count: Count) -> Iterator[Obligation]:
    """Exactness at the start and the delta lemma of each action, for a count over an uninterpreted sort."""
    name, counter = count_claim(count), counter_of(machine, count)
    nobody = t.conj(t.neg(at_start(count.member, machine)), t.equal(at_start(counter, machine), t.integer(0)))
    yield Obligation(name, "initiation", INITIALLY, None, (*count.args, count.over), (), nobody)
    reads = t.reads(count.member) | {count.counter}
    for action in machine.actions:
        if not action.writes & reads:
            yield framed(name, "count", action)
            continue
        params, (member, number) = apart((*count.args, count.over), action, count.member, counter)
        goal = _exact_after(action, params[-1], member, number)
        guards = tuple(g.term for g in action.guards)
        yield of_action(name, "count", action, params[:-1], guards, goal)


def _exact_after(action: Action, over: Param, member: t.Term, counter: t.Term) -> t.Term:
    """That the counter stays exact: one of the three ways of the module's head, for these arguments."""
    member_after, counter_after = after(member, action), after(counter, action)
    x = over.var
    # The bound variable gets a name that no parameter can have.
    bound = t.Var(f"{x.name}.any", x.sort)

    def at(term: t.Term, place: t.Term) -> t.Term:
        return t.substitute(term, {x: place})

    ways = [t.conj(t.ForAll((bound,), t.neg(at(member_after, bound))), t.equal(counter_after, t.integer(0)))]
    own = [p.var for p in action.params if p.sort == over.sort and not p.is_set]
    for places in _subsets(own):
        elsewhere = t.conj(*(t.neg(t.equal(bound, p)) for p in places))
        same = t.equal(at(member_after, bound), at(member, bound))
        gained = _sum(at(member_after, p) for p in places)
        lost = _sum(at(member, p) for p in places)
        different = t.conj(*(t.neg(t.equal(p, q)) for p, q in combinations(places, 2)))
        exact = t.equal(t.add(counter_after, lost), t.add(counter, gained))
        ways.append(t.conj(different, t.quantify(t.ForAll, (bound,), t.implies(elsewhere, same)), exact))
    return t.disj(*ways)


def _subsets(places: list[t.Var]) -> Iterable[tuple[t.Var, ...]]:
    return (c for n in range(min(len(places), 2) + 1) for c in combinations(places, n))


def capacity(machine: Machine, name: str) -> str | None:
    """The constant that bounds a counter and nothing else, so that it only has to be as large as the sort counted over."""
    sort = machine.var(name).sort
    if not isinstance(sort, IntSort) or not isinstance(sort.high, str):
        return None
    if not any(c.counter == name for c in over_individuals(machine)):
        return None
    terms = [f.body for a in machine.actions for _, f in a.updates]
    terms += [a.guard for a in machine.actions] + [p.body for p in machine.properties]
    read = {n.name for term in terms for n in t.walk(term) if isinstance(n, t.Const)}
    return None if sort.high in read else sort.high


def over_individuals(machine: Machine) -> tuple[Count, ...]:
    """The counts that need delta lemmas."""
    return tuple(c for c in machine.counts if isinstance(c.over.sort, UninterpretedSort))


def over_enums(machine: Machine) -> tuple[Count, ...]:
    """The counts that are plain sums."""
    return tuple(c for c in machine.counts if is_sum(c))
