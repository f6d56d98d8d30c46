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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from vllm_lifecycle.spec.check.induction.smtlib import within
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Machine, Param, Property
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
class Obligation:
    """Show `goal` for all values of the parameters, given `hypotheses` and (unless initial) the assumptions.

    `action` is None for the start, and for "every action that assigns none of the variables". Where `expect_model` is
    set the roles are turned: the hypotheses must be satisfiable together with the assumptions. The first `action_params`
    parameters are the action's. `claimed` is the claim itself, parameters free, for the replay on concrete states.
    """

    claim: str
    kind: Kind
    label: str
    action: str | None
    params: tuple[Param, ...]
    hypotheses: tuple[t.Term, ...]
    goal: t.Term
    action_params: int = 0
    claimed: t.Term | None = None
    frame: bool = False

    @property
    def name(self) -> str:
        """`claim / where`, unique within a proof."""
        return f"{self.claim} / {self.label}"

    @property
    def reads(self) -> frozenset[str]:
        """State variables that the hypotheses and the goal read."""
        return t.reads(self.goal).union(*(t.reads(h) for h in self.hypotheses))

    @property
    def asserted(self) -> tuple[t.Term, ...]:
        """What is asserted: the hypotheses and the negation of the goal (no goal where a model is wanted)."""
        return self.hypotheses if self.expect_model else (*self.hypotheses, t.neg(self.goal))

    @property
    def initial(self) -> bool:
        """Whether it speaks of the initial state, where nothing may be assumed."""
        return self.kind == "initiation"

    @property
    def expect_model(self) -> bool:
        """Whether a model is wanted rather than none."""
        return self.kind == "enabled"


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


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about every state: for all values of `params`, `antecedent -> consequent`."""

    name: str
    kind: Kind
    params: tuple[Param, ...]
    antecedent: t.Term
    consequent: t.Term

    @property
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
    start = (at_start(claim.antecedent, machine), at_start(claim.consequent, machine))
    yield Obligation(claim.name, "initiation", INITIALLY, None, claim.params, (start[0],), start[1])
    for action in machine.actions:
        if not action.writes & claim.reads:
            yield framed(claim.name, claim.kind, action)
            continue
        params, (antecedent, consequent) = apart(claim.params, action, claim.antecedent, claim.consequent)
        hypotheses = (*(g.term for g in action.guards), after(antecedent, action))
        goal = after(consequent, action)
        yield of_action(
            claim.name, claim.kind, action, params, hypotheses, goal, t.implies(antecedent, consequent)
        )


def framed(claim: str, kind: Kind, action: Action) -> Obligation:
    """The frame obligation of an action that assigns nothing of the claim."""
    return Obligation(claim, kind, action.name, action.name, (), (), t.TRUE, frame=True)


def of_action(
    claim: str,
    kind: Kind,
    action: Action,
    params: tuple[Param, ...],
    hypotheses: tuple[t.Term, ...],
    goal: t.Term,
    claimed: t.Term | None = None,
) -> Obligation:
    """An obligation about a step of an action: its parameters come first."""
    own = len(action.params)
    return Obligation(
        claim, kind, action.name, action.name, (*action.params, *params), hypotheses, goal, own, claimed
    )


_UNCHANGED = Action("", (), (), (), None, "", "", (), "")  # type: ignore[arg-type]


def step_obligations(machine: Machine, claim: Property) -> Iterator[Obligation]:
    """One obligation per action that assigns a variable of a step property, and one for all the others together."""
    aside = False
    for action in machine.actions:
        if not action.writes & claim.reads:
            aside = True
            yield framed(claim.name, "step", action)
            continue
        params, terms = apart(claim.params, action, claim.antecedent, claim.consequent)
        antecedent, goal = (after(term, action, primed=True) for term in terms)
        hypotheses = (*(g.term for g in action.guards), antecedent)
        yield of_action(claim.name, "step", action, params, hypotheses, goal, t.implies(*terms))
    if aside:
        antecedent, goal = (
            after(term, _UNCHANGED, primed=True) for term in (claim.antecedent, claim.consequent)
        )
        yield Obligation(claim.name, "step", UNTOUCHED, None, claim.params, (antecedent,), goal)


def enabled_obligations(machine: Machine) -> Iterator[Obligation]:
    """For each action: its guards are satisfiable in some state that keeps the invariants; else its proofs are vacuous."""
    for action in machine.actions:
        guards = tuple(g.term for g in action.guards)
        yield of_action(enabled_claim(action.name), "enabled", action, (), guards, t.FALSE, None)


def enabled_claim(action: str) -> str:
    """The name of the claim that an action is not vacuous."""
    return f"{action} is possible"
