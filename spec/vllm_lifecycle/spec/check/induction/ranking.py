"""Ranking functions: progress for any number of individuals, from fairness and a measure that cannot fall for ever.

To show `P ~> Q` give a rank, a tuple compared from the left, and helpful steps, each with a condition under which it helps.
Pending means that the obligation is open: a state formula that holds when `P` and not `Q` (by default just that). Shown is,
given the invariants, for all values of the claim's parameters:
- open: where `P` holds and `Q` does not, pending holds; pending and not `Q`, some step helps; numbers in the rank are >= 0;
- keeps: every action leads to `Q`, or to pending with a rank that is not higher;
- stays: every action that leaves the rank as it is leaves each step helpful that was;
- helps: a helpful step leads to `Q` or to a lower rank, and it is enabled (weak fairness). A strongly fair one only has to
  be enabled again and again: that is another progress claim `A ~> B`, shown before: where the step helps, `A` holds or it is
  enabled, and with `B` it is enabled.
Then a run on which the obligation stays open for ever has a rank that is constant from some point on, with some step helpful and
enabled (again and again) but never taken, against its fairness.

An entry of a rank is a number, or a set (`members`) that is compared by inclusion: inclusion of finite sets cannot fall for ever
either, which is an assumption of the verdict. Fairness is that of one action with its scalar parameters fixed; a
set-valued parameter may be any, so a step must help whatever the set, and be enabled with the set that is given.
Rejected: counting in the solver; rules with one helpful step at a time (they need the steps to take turns).

    ranks = Rankings(SYSTEM)
    ranks.claim("a_finished_request_is_freed", rank=lambda s, r: (one_if(sending(s, r)),), steps=lambda s, r: (
        helpful("send_completes", r=r, when=sending(s, r)),
        helpful("free_request", r=r, when=~sending(s, r)),
    ))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Expr, State, lift, variable
from vllm_lifecycle.spec.lang.claims import Implication
from vllm_lifecycle.spec.lang.machine import Action, Fairness, Machine, Param
from vllm_lifecycle.spec.lang.sorts import BOOL, DefinitionError, IntSort, Sort


@dataclass(frozen=True, slots=True)
class SetEntry:
    """An entry of a rank: the set of the `params` for which `member` holds, compared by inclusion."""

    params: tuple[Param, ...]
    member: t.Term


Entry = t.Term | SetEntry


@dataclass(frozen=True, slots=True)
class Helpful:
    """A fair step that lowers the rank where `when` holds.

    `bound` gives some scalar parameters of the action as terms over the claim's parameters; the others are free in `when`. `sets`
    gives each set-valued parameter the set with which the step is enabled, as (variable, condition). `after` names the
    progress claim that makes it enabled again and again, with the terms for that claim's parameters.
    """

    action: str
    bound: tuple[tuple[str, t.Term], ...]
    when: t.Term
    sets: tuple[tuple[str, t.Var, t.Term], ...] = ()
    after: str | None = None
    given: tuple[tuple[str, t.Term], ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """`antecedent ~> consequent` with its rank; parameters are named `the_...`, apart from those of actions.

    `unless` says in words what is assumed never to happen; the condition itself is part of `consequent`.
    """

    name: str
    params: tuple[Param, ...]
    antecedent: t.Term
    consequent: t.Term
    pending: t.Term
    rank: tuple[Entry, ...]
    steps: tuple[Helpful, ...]
    unless: str = ""

    def step_params(self, step: Helpful, action: Action) -> tuple[Param, ...]:
        """The scalar parameters of a helpful action that the claim does not fix."""
        fixed = {name for name, _ in step.bound}
        return tuple(p for p in action.params if not p.is_set and p.name not in fixed)


@dataclass(frozen=True)
class _Step:
    """A helpful step as written, before the machine is asked what its parameters are."""

    action: str
    when: Any
    after: str | None
    given: Mapping[str, Any]
    arguments: Mapping[str, Any]


def helpful(
    action: str,
    *,
    when: Any,
    after: str | None = None,
    given: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> _Step:
    """A helpful step: arguments fix parameters of the action (a function gives a set-valued one by its members).

    `when` is a condition, or a function of the scalar parameters left open, by their names. `after` names the progress claim
    that makes a strongly fair step enabled again and again; `given` fixes that claim's parameters.
    """
    return _Step(action, when, after, given or {}, arguments)


def members(*arguments: Any) -> tuple[Any, ...]:
    """An entry of a rank: `members(Step, Request, lambda k, r: condition)`, the set of those for which it holds."""
    return arguments


class Rankings:
    """The progress claims of a machine that have a rank, in the order in which they lean on each other."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.all: list[Ranking] = []

    def signature(self, name: str) -> tuple[tuple[Sort, ...], Sort]:
        """Argument sorts and value sort of a state variable."""
        try:
            var = self.machine.var(name)
        except KeyError:
            raise DefinitionError(f"unknown state variable {name}") from None
        return var.args, var.sort

    def claim(
        self,
        name: str,
        *,
        rank: Callable[..., Iterable[Any]],
        steps: Callable[..., Iterable[_Step]],
        pending: Callable[..., Expr] | None = None,
        unless: tuple[str, Callable[..., Expr]] | None = None,
    ) -> None:
        """Give a progress property of the machine its rank and helpful steps.

        `unless` is a condition in words and as a function: shown is that the consequent or the condition comes about, so
        that the property holds on runs on which the condition never does. That becomes an assumption of the verdict.
        """
        prop = self.machine.claim(name)
        if prop.kind != "progress":
            raise DefinitionError(f"{name} is no progress property: only those have a rank")
        mapping: dict[t.Var, t.Term] = {p.var: t.Var(f"the_{p.name}", p.sort) for p in prop.params}
        params = tuple(Param(f"the_{p.name}", p.sort) for p in prop.params)
        antecedent, consequent = (t.substitute(term, mapping) for term in (prop.antecedent, prop.consequent))
        words = ""
        if unless is not None:
            words, condition = unless
            consequent = t.disj(consequent, lift(condition(State(self), *(Expr(p.var) for p in params))))
        self._add(name, params, antecedent, consequent, rank, steps, pending, words)

    def lemma(
        self,
        claim: Callable[..., Implication],
        *,
        rank: Callable[..., Iterable[Any]],
        steps: Callable[..., Iterable[_Step]],
        pending: Callable[..., Expr] | None = None,
    ) -> None:
        """A progress claim that only serves others: a function of the state and parameters, annotated with their sorts."""
        hints = inspect.get_annotations(claim, eval_str=True)
        names = list(inspect.signature(claim).parameters)[1:]
        arguments = [variable(f"the_{name}", hints[name]) for name in names]
        params = tuple(Param(f"the_{n}", t.sort_of(a.term)) for n, a in zip(names, arguments, strict=True))
        said = claim(State(self), *arguments)
        self._add(claim.__name__, params, said.antecedent.term, said.consequent.term, rank, steps, pending)

    def _add(
        self,
        name: str,
        params: tuple[Param, ...],
        antecedent: t.Term,
        consequent: t.Term,
        rank: Callable[..., Iterable[Any]],
        steps: Callable[..., Iterable[_Step]],
        pending: Callable[..., Expr] | None,
        unless: str = "",
    ) -> None:
        if any(r.name == name for r in self.all):
            raise DefinitionError(f"{name} has two ranks: give it one")
        state, own = State(self), [Expr(p.var) for p in params]
        open_ = antecedent if pending is None else lift(pending(state, *own))
        entries = tuple(_entry(e) for e in rank(state, *own))
        found = tuple(self._step(name, step) for step in steps(state, *own))
        pending_term = t.conj(open_, t.neg(consequent))
        self.all.append(Ranking(name, params, antecedent, consequent, pending_term, entries, found, unless))

    def _step(self, name: str, step: _Step) -> Helpful:
        action = self.machine.action(step.action)
        by_name = {p.name: p for p in action.params}
        unknown = set(step.arguments) - set(by_name)
        if unknown:
            raise DefinitionError(f"{name}: {action.name} has no parameter {min(unknown)}")
        bound = tuple((n, lift(v)) for n, v in step.arguments.items() if not by_name[n].is_set)
        sets: list[tuple[str, t.Var, t.Term]] = []
        for param in action.params:
            if param.is_set:
                if param.name not in step.arguments:
                    raise DefinitionError(
                        f"{name}: say with which set {param.name} the step {action.name} is enabled"
                    )
                element = t.Var(f"{param.name}.element", param.sort)
                sets.append((param.name, element, lift(step.arguments[param.name](Expr(element)))))
        left = {p.name: Expr(p.var) for p in action.params if not p.is_set and p.name not in step.arguments}
        when = lift(step.when(**left) if callable(step.when) else step.when)
        needed = Fairness.STRONG if step.after else Fairness.WEAK
        if not is_fair_enough(action, step.after):
            raise DefinitionError(
                f"{name}: {action.name} is not fair enough to help, it needs {needed.value} fairness"
            )
        if step.after and not any(r.name == step.after for r in self.all):
            raise DefinitionError(f"{name}: {step.after} has no rank yet: give it one before it is used")
        given = tuple((f"the_{n}", lift(v)) for n, v in step.given.items())
        return Helpful(action.name, bound, when, tuple(sets), step.after, given)


def is_fair_enough(action: Action, after: str | None) -> bool:
    """Whether an action's fairness lets it help: strong fairness where it is only enabled again and again."""
    return action.fairness is Fairness.STRONG or (after is None and action.fairness is Fairness.WEAK)


def _entry(entry: Any) -> Entry:
    if not isinstance(entry, tuple):
        term = lift(entry)
        if not isinstance(t.sort_of(term), IntSort):
            raise DefinitionError(
                f"an entry of a rank is a number or members(...), not of sort {t.sort_of(term)}"
            )
        return term
    *sorts, condition = entry
    names = list(inspect.signature(condition).parameters)
    variables = [variable(f"{n}.member", s) for n, s in zip(names, sorts, strict=True)]
    term = lift(condition(*variables))
    if t.sort_of(term) != BOOL:
        raise DefinitionError("members(...) needs a condition")
    return SetEntry(
        tuple(Param(v.term.name, t.sort_of(v.term)) for v in variables if isinstance(v.term, t.Var)), term
    )
