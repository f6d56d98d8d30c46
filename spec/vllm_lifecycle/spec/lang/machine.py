"""Machines: the frozen result of a specification, and nothing that runs it.

A `Machine` is plain data: state variables, actions (parameters, guards, next-state functions), properties, witnesses,
lifecycles and count lemmas. Every engine, exporter and test reads this one value. A module is a set of state variables;
`Machine.project` keeps some modules and drops the guards that speak of others, which only adds behaviour, so that
"holds" carries over to the whole. A scope restricts behaviour (sizes, features); it never edits a machine.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, TypeVar

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort, Sort, UninterpretedSort


class Fairness(Enum):
    """What may be assumed of an action that stays (weak) or keeps becoming (strong) enabled: it is taken."""

    NONE = "none"
    WEAK = "weak"
    STRONG = "strong"


@dataclass(frozen=True, slots=True)
class StateVar:
    """A state variable: a function from its argument sorts to a value sort, constant at the start.

    A ghost records the truth for properties and is never read by a guard or by the update of a non-ghost.
    """

    name: str
    args: tuple[Sort, ...]
    sort: Sort
    init: t.Lit
    module: str
    ghost: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an action or property: an individual, an enum member, a number, or (`is_set`) a set of them."""

    name: str
    sort: Sort
    is_set: bool = False

    @property
    def var(self) -> t.Var:
        """The variable that stands for the parameter (not for sets)."""
        return t.Var(self.name, self.sort)


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition for an action; `label` says why, in words."""

    label: str
    term: t.Term


@dataclass(frozen=True, slots=True)
class Action:
    """One transition: enabled where all guards hold, it assigns the next-state functions at once.

    `sources` maps a release to the file and function whose behaviour this models; `by` names the party that takes the
    step (client, scheduler, worker, connector, grammar); `feature` the switch of a scope that turns it on.
    """

    name: str
    params: tuple[Param, ...]
    guards: tuple[Guard, ...]
    updates: tuple[tuple[str, t.Function], ...]
    fairness: Fairness
    by: str
    feature: str
    sources: tuple[tuple[str, str], ...]
    doc: str

    @property
    def guard(self) -> t.Term:
        """The conjunction of the guards."""
        return t.conj(*(g.term for g in self.guards))

    @property
    def writes(self) -> frozenset[str]:
        """Names of the variables assigned."""
        return frozenset(name for name, _ in self.updates)

    def update(self, name: str) -> t.Function | None:
        """The next-state function of a variable, or None when it is left alone."""
        return next((f for n, f in self.updates if n == name), None)


PropertyKind = Literal["state", "step", "progress"]


@dataclass(frozen=True, slots=True)
class Property:
    """A named claim, implicitly for all its parameters.

    kind `state`: `antecedent -> consequent` in every reachable state; `step`: of every step, where primed reads are the
    state after it; `progress`: whenever `antecedent` holds, `consequent` holds then or later, under the fairness of the
    actions. `lemma` marks an invariant that only serves the proof. `ids` are the catalogue names (P1, PIN, ...).
    """

    name: str
    kind: PropertyKind
    params: tuple[Param, ...]
    antecedent: t.Term
    consequent: t.Term
    ids: tuple[str, ...]
    lemma: bool
    doc: str

    @property
    def body(self) -> t.Term:
        """`antecedent -> consequent`, parameters free."""
        return t.implies(self.antecedent, self.consequent)

    @property
    def closed(self) -> t.Term:
        """The claim with its parameters quantified."""
        return t.quantify(t.ForAll, tuple(p.var for p in self.params), self.body)

    @property
    def reads(self) -> frozenset[str]:
        """State variables that the claim depends on."""
        return t.reads(self.antecedent) | t.reads(self.consequent)


@dataclass(frozen=True, slots=True)
class Witness:
    """A condition that some reachable state must satisfy for some values of the parameters.

    `primed` reads make it a condition on a step. `of` is the property whose antecedent it is, or None.
    """

    name: str
    params: tuple[Param, ...]
    term: t.Term
    of: str | None
    doc: str

    @property
    def on_step(self) -> bool:
        """Whether it speaks of a step rather than of a state."""
        return any(isinstance(n, t.Read) and n.primed for n in t.walk(self.term))


@dataclass(frozen=True, slots=True)
class Count:
    """A claim `counter[args] = number of individuals x with member(x, args)`, kept by every action (a delta lemma)."""

    counter: str
    args: tuple[Param, ...]
    over: Param
    member: t.Term
    doc: str


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The states of one object, written down independently of the actions: a plain successor list."""

    name: str
    var: str
    index: tuple[t.Lit | None, ...]
    successors: tuple[tuple[Enum, frozenset[Enum]], ...]
    doc: str

    @property
    def table(self) -> dict[Enum, frozenset[Enum]]:
        """State -> states that one action may lead to (itself not listed)."""
        return dict(self.successors)


@dataclass(frozen=True, slots=True)
class Machine:
    """A whole specification; see the module's head."""

    name: str
    vars: tuple[StateVar, ...]
    consts: tuple[t.Const, ...]
    actions: tuple[Action, ...]
    properties: tuple[Property, ...]
    witnesses: tuple[Witness, ...]
    counts: tuple[Count, ...]
    lifecycles: tuple[Lifecycle, ...]
    dropped_guards: tuple[tuple[str, t.Term], ...] = ()
    _index: dict[str, StateVar] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._index.update({v.name: v for v in self.vars})

    def var(self, name: str) -> StateVar:
        """The state variable of that name; KeyError when there is none."""
        return self._index[name]

    def action(self, name: str) -> Action:
        """The action of that name; DefinitionError names the choices."""
        return _named(self.actions, name, "action")

    def claim(self, name: str) -> Property:
        """The property of that name; DefinitionError names the choices."""
        return _named(self.properties, name, "property")

    @property
    def sorts(self) -> tuple[UninterpretedSort, ...]:
        """Uninterpreted sorts in order of first use, in the state, in parameters, or below a quantifier."""
        seen: dict[UninterpretedSort, None] = {}
        places: list[Sort] = [s for v in self.vars for s in (*v.args, v.sort)]
        signatures = (r.params for rows in (self.actions, self.properties, self.witnesses) for r in rows)
        places += [p.sort for params in signatures for p in params]
        nodes = (node for term in self.terms for node in t.walk(term))
        places += [v.sort for n in nodes if isinstance(n, t.ForAll | t.Exists) for v in n.vars]
        for sort in places:
            if isinstance(sort, UninterpretedSort):
                seen[sort] = None
        return tuple(seen)

    @property
    def terms(self) -> Iterator[t.Term]:
        """Every term of the machine: guards, next states, claims, witnesses, members of counts."""
        for action in self.actions:
            yield from (g.term for g in action.guards)
            yield from (f.body for _, f in action.updates)
        for prop in self.properties:
            yield from (prop.antecedent, prop.consequent)
        yield from (w.term for w in self.witnesses)
        yield from (c.member for c in self.counts)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules in order of first use."""
        return tuple(dict.fromkeys(v.module for v in self.vars))

    @property
    def features(self) -> tuple[str, ...]:
        """Features in order of first use."""
        return tuple(dict.fromkeys(a.feature for a in self.actions))

    def with_features(self, features: Iterable[str]) -> Machine:
        """Only the actions of these features: a restriction, so "refuted" carries over to the whole."""
        wanted = frozenset(features)
        unknown = wanted - frozenset(self.features)
        if unknown:
            raise DefinitionError(
                f"unknown feature {', '.join(sorted(unknown))}: choose from {', '.join(self.features)}"
            )
        return replace(self, actions=tuple(a for a in self.actions if a.feature in wanted), _index={})

    def project(self, modules: Iterable[str]) -> Machine:
        """Only the state of these modules; guards that read other state are dropped (and listed).

        The result has more behaviour than the whole, never less: what holds in it holds in the whole. DefinitionError
        when a kept variable is updated from a dropped one.
        """
        wanted = frozenset(modules)
        unknown = wanted - frozenset(self.modules)
        if unknown:
            raise DefinitionError(
                f"unknown module {', '.join(sorted(unknown))}: choose from {', '.join(self.modules)}"
            )
        return self._keep(frozenset(v.name for v in self.vars if v.module in wanted))

    def closure(self, modules: Iterable[str]) -> tuple[str, ...]:
        """The given modules and those whose state their updates read: the least that `project` accepts."""
        wanted = set(modules)
        while True:
            names = {v.name for v in self.vars if v.module in wanted}
            read = {n for a in self.actions for w, f in a.updates if w in names for n in t.reads(f.body)}
            more = wanted | {v.module for v in self.vars if v.name in read}
            if more == wanted:
                return tuple(m for m in self.modules if m in wanted)
            wanted = more

    def _keep(self, names: frozenset[str]) -> Machine:
        dropped: list[tuple[str, t.Term]] = []
        actions: list[Action] = []
        for action in self.actions:
            guards: list[Guard] = []
            for guard in action.guards:
                for part in t.conjuncts(guard.term):
                    if t.reads(part) <= names:
                        guards.append(Guard(guard.label, part))
                    else:
                        dropped.append((action.name, part))
            updates = tuple((n, f) for n, f in action.updates if n in names)
            for name, function in updates:
                foreign = t.reads(function.body) - names
                if foreign:
                    raise DefinitionError(
                        f"{action.name} updates {name} from {', '.join(sorted(foreign))}: include the module of those too"
                    )
            if updates:
                used = {v.name for _, f in updates for v in t.free_vars(f.body)}
                used |= {v.name for g in guards for v in t.free_vars(g.term)}
                for term in (*(g.term for g in guards), *(f.body for _, f in updates)):
                    used |= {n.set_name for n in t.walk(term) if isinstance(n, t.InSet)}
                params = tuple(p for p in action.params if p.name in used)
                actions.append(replace(action, guards=tuple(guards), updates=updates, params=params))
        return replace(
            self,
            vars=tuple(v for v in self.vars if v.name in names),
            actions=tuple(actions),
            properties=tuple(p for p in self.properties if p.reads <= names),
            witnesses=tuple(w for w in self.witnesses if t.reads(w.term) <= names),
            counts=tuple(c for c in self.counts if c.counter in names and t.reads(c.member) <= names),
            lifecycles=tuple(lc for lc in self.lifecycles if lc.var in names),
            dropped_guards=tuple(dropped),
            _index={},
        )

    def cone(self, names: Iterable[str]) -> frozenset[str]:
        """Variables that the given ones can depend on: the closure over guards and updates of their writers."""
        known = set(names)
        while True:
            more = set(known)
            for action in self.actions:
                if action.writes & known:
                    more |= t.reads(action.guard)
                    for name, function in action.updates:
                        if name in known:
                            more |= t.reads(function.body)
            if more == known:
                return frozenset(known)
            known = more

    def slice(self, names: Iterable[str]) -> Machine:
        """The cone of influence of some variables: exact for every property over them."""
        return self._keep(self.cone(names))


Named = TypeVar("Named", Action, Property)


def _named(items: tuple[Named, ...], name: str, what: str) -> Named:
    for item in items:
        if item.name == name:
            return item
    near = difflib.get_close_matches(name, [i.name for i in items], n=3)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"{len(items)} are defined; list them with `explain`"
    )
    raise DefinitionError(f"unknown {what} {name}: {hint}")


def range_of(sort: IntSort, constants: Mapping[str, int]) -> range:
    """The concrete range of an integer sort under a scope's constants; DefinitionError when one is missing."""
    if isinstance(sort.high, int):
        high = sort.high
    elif sort.high in constants:
        high = constants[sort.high]
    else:
        raise DefinitionError(f"constant {sort.high} has no value: give it one in the scope")
    return range(sort.low, high + 1)
