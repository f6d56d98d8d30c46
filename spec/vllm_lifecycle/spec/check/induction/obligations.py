"""Proof obligations: what has to be shown, one by one, for a claim to hold in every reachable state or step.

The invariants of a machine are its `state` properties and the ranges of its integer variables (and its count lemmas, see
`counts`). They are shown together: each holds at the start, and each action keeps each of them, given that all held before.
`after` gives the weakest precondition: the reads of the state after an action become the action's next-state functions.
A `step` property is one obligation per action, given the invariants before.

An obligation whose action assigns nothing that the claim reads is a frame obligation: the claim is the same term before and
after, and was assumed before. A step property has no "before": what an action does that assigns none of its variables is
one obligation, shared by all such actions, with nothing but the invariants to lean on.

The names of an action's and a claim's parameters may collide; the claim's are then renamed. Rejected: one obligation
for the conjunction of all invariants (slow, and a failure names nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

from vllm_lifecycle.spec.check.induction.smtlib import within
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Fairness, Machine, Param, Property
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort

Kind = Literal["initiation", "consecution", "step", "range", "count", "rank", "enabled"]


@dataclass(frozen=True, slots=True)
class Assumption:
    """What may be assumed of a state before a step: `of` is the claim that has to be established for it."""

    name: str
    of: str
    term: t.Term
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class Body:
    """What an obligation says: for all `params`, `hypotheses` give `goal`.

    Where a step of `action` is spoken of, the first parameters are the action's and the first hypotheses its guards.
    `claimed` is the claim itself, parameters free, for the replay on concrete states.
    """

    params: tuple[Param, ...]
    hypotheses: tuple[t.Term, ...]
    goal: t.Term
    action: Action | None = None
    claimed: t.Term | None = None

    @property
    def own_params(self) -> int:
        """How many of the parameters are the action's."""
        return len(self.action.params) if self.action is not None else 0


FRAME = Body((), (), t.TRUE)


@dataclass(frozen=True)
class Obligation:
    """Show the body for all values of its parameters, given (unless initial) the assumptions.

    `action` is None for the start, and for "every action that assigns none of the variables". Where `expect_model` is
    set the roles are turned: the hypotheses must be satisfiable together with the assumptions. The body is made when it is
    first asked for, and stays behind when an obligation travels to another process.
    """

    claim: str
    kind: Kind
    label: str
    action: str | None
    make: Callable[[], Body] = field(repr=False, compare=False)
    frame: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Obligation, (self.claim, self.kind, self.label, self.action, _left_behind, self.frame)

    @property
    def name(self) -> str:
        """`claim / where`, unique within a proof."""
        return f"{self.claim} / {self.label}"

    @cached_property
    def body(self) -> Body:
        """What it says."""
        return self.make()

    @property
    def asserted(self) -> tuple[t.Term, ...]:
        """What is asserted: the hypotheses and the negation of the goal (no goal where a model is wanted)."""
        body = self.body
        return body.hypotheses if self.expect_model else (*body.hypotheses, t.neg(body.goal))

    @property
    def initial(self) -> bool:
        """Whether it speaks of the initial state, where nothing may be assumed."""
        return self.kind == "initiation"

    @property
    def expect_model(self) -> bool:
        """Whether a model is wanted rather than none."""
        return self.kind == "enabled"


def _left_behind() -> Body:
    raise LookupError("the body of this obligation stayed in another process")


INITIALLY = "initially"
UNTOUCHED = "any action that leaves its variables alone"


def after(term: t.Term, action: Action, *, primed: bool = False) -> t.Term:
    """The term in the state after an action: its (with `primed`: only its primed) reads become next-state functions."""

    def leaf(node: t.Term) -> t.Term | None:
        if not isinstance(node, t.Read) or node.primed != primed:
            return None
        function = action.update(node.var)
        if function is not None:
            return function(*node.args)
        return t.Read(node.var, node.args, node.sort)

    bound = {v.name for node in t.walk(term) if isinstance(node, t.ForAll | t.Exists) for v in node.vars}
    captured = bound & {p.name for p in action.params}
    if captured:
        raise DefinitionError(
            f"{action.name}: the parameter {min(captured)} is also bound by a quantifier: rename one of them"
        )
    return t.transform(term, leaf)


def at_start(term: t.Term, machine: Machine) -> t.Term:
    """The term in the initial state: every read is its variable's initial value."""
    return t.transform(term, lambda node: machine.var(node.var).init if isinstance(node, t.Read) else None)


def apart(
    params: tuple[Param, ...], action: Action, *terms: t.Term
) -> tuple[tuple[Param, ...], tuple[t.Term, ...]]:
    """Claim parameters and terms, renamed so that no name is also one of the action's parameters."""
    taken = {p.name for p in action.params} | {p.name for p in params}
    fresh: list[Param] = []
    mapping: dict[t.Var, t.Term] = {}
    for param in params:
        name = param.name
        if any(p.name == name for p in action.params):
            while name in taken:
                name += "_"
            taken.add(name)
            mapping[param.var] = t.Var(name, param.sort)
        fresh.append(Param(name, param.sort))
    return tuple(fresh), tuple(t.substitute(term, mapping) for term in terms)


def range_claim(name: str) -> str:
    """The name of the claim that an integer variable stays in its range."""
    return f"{name} stays in its range"


@dataclass(frozen=True)
class Claim:
    """A claim about every state: for all values of `params`, `antecedent -> consequent`."""

    name: str
    kind: Kind
    params: tuple[Param, ...]
    antecedent: t.Term
    consequent: t.Term

    @cached_property
    def reads(self) -> frozenset[str]:
        """State variables that the claim reads."""
        return t.reads(self.antecedent) | t.reads(self.consequent)

    @property
    def closed(self) -> t.Term:
        """The claim with its parameters quantified."""
        return t.quantify(
            t.ForAll, tuple(p.var for p in self.params), t.implies(self.antecedent, self.consequent)
        )


def property_claims(machine: Machine) -> Iterator[Claim]:
    """The state properties as claims about every state."""
    return (
        Claim(p.name, "consecution", p.params, p.antecedent, p.consequent)
        for p in machine.properties
        if p.kind == "state"
    )


def range_claims(machine: Machine, unbounded: frozenset[str]) -> Iterator[Claim]:
    """The ranges of the integer variables; only the lower end of the `unbounded` ones."""
    for var in machine.vars:
        if isinstance(var.sort, IntSort):
            params = tuple(Param(f"x{i}", sort) for i, sort in enumerate(var.args))
            read = t.Read(var.name, tuple(p.var for p in params), var.sort)
            lower = t.less_equal(t.integer(var.sort.low), read)
            claim = lower if var.name in unbounded else within(read, var.sort)
            yield Claim(range_claim(var.name), "range", params, t.TRUE, claim)


def assumptions(claims: tuple[Claim, ...]) -> tuple[Assumption, ...]:
    """What the claims give to each other's proofs."""
    return tuple(Assumption(c.name, c.name, c.closed, c.reads) for c in claims)


def state_obligations(machine: Machine, claim: Claim) -> Iterator[Obligation]:
    """Initiation, and consecution for each action."""

    def start() -> Body:
        antecedent, consequent = (at_start(term, machine) for term in (claim.antecedent, claim.consequent))
        return Body(
            claim.params, (antecedent,), consequent, claimed=t.implies(claim.antecedent, claim.consequent)
        )

    def kept(action: Action) -> Body:
        params, (antecedent, consequent) = apart(claim.params, action, claim.antecedent, claim.consequent)
        hypotheses = (after(antecedent, action),)
        return of_action(
            action, params, hypotheses, after(consequent, action), t.implies(antecedent, consequent)
        )

    yield Obligation(claim.name, "initiation", INITIALLY, None, start)
    yield from per_action(machine, claim.name, claim.kind, claim.reads, kept)


def per_action(
    machine: Machine, claim: str, kind: Kind, reads: frozenset[str], make: Callable[[Action], Body]
) -> Iterator[Obligation]:
    """One obligation per action: a frame obligation where it assigns none of the variables read."""
    for action in machine.actions:
        frame = not action.writes & reads
        body = (lambda: FRAME) if frame else partial(make, action)
        yield Obligation(claim, kind, action.name, action.name, body, frame)


def of_action(
    action: Action,
    params: tuple[Param, ...],
    hypotheses: tuple[t.Term, ...],
    goal: t.Term,
    claimed: t.Term | None = None,
) -> Body:
    """What is to be shown of a step of an action: its parameters come first, its guards are hypotheses."""
    guards = tuple(g.term for g in action.guards)
    return Body((*action.params, *params), (*guards, *hypotheses), goal, action, claimed)


_UNCHANGED = Action("", (), (), (), Fairness.NONE, "", "", (), "")


def step_obligations(machine: Machine, claim: Property) -> Iterator[Obligation]:
    """One obligation per action that assigns a variable of a step property, and one for all the others together."""

    def step(action: Action) -> Body:
        params, terms = apart(claim.params, action, claim.antecedent, claim.consequent)
        antecedent, goal = (after(term, action, primed=True) for term in terms)
        return of_action(action, params, (antecedent,), goal, t.implies(*terms))

    def untouched() -> Body:
        terms = (claim.antecedent, claim.consequent)
        antecedent, goal = (after(term, _UNCHANGED, primed=True) for term in terms)
        return Body(claim.params, (antecedent,), goal)

    found = list(per_action(machine, claim.name, "step", claim.reads, step))
    yield from found
    if any(o.frame for o in found):
        yield Obligation(claim.name, "step", UNTOUCHED, None, untouched)


def enabled_obligations(machine: Machine) -> Iterator[Obligation]:
    """For each action: its guards are satisfiable in some state that keeps the invariants; else its proofs are vacuous."""
    for action in machine.actions:
        make = partial(of_action, action, (), (), t.FALSE)
        yield Obligation(enabled_claim(action.name), "enabled", action.name, action.name, make)


def enabled_claim(action: str) -> str:
    """The name of the claim that an action is not vacuous."""
    return f"{action} is possible"
