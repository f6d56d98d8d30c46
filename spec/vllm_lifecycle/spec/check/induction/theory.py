"""A machine as one solver session: its declarations, and its assumptions below switches.

`Theory` collects, for a machine, all claims about every state with their obligations, what may be assumed of a state before a
step, and the text of every question. It knows no solver; `Prover` asks one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from vllm_lifecycle.spec.check.induction import counts, progress
from vllm_lifecycle.spec.check.induction.obligations import (
    Assumption,
    Claim,
    Obligation,
    assumptions,
    enabled_obligations,
    property_claims,
    range_claims,
    state_obligations,
    step_obligations,
)
from vllm_lifecycle.spec.check.induction.ranking import Ranking
from vllm_lifecycle.spec.check.induction.smtlib import declarations, question, text
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.alternation import alternation_edges, alternations, find_cycle
from vllm_lifecycle.spec.lang.machine import Action, Count, Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError, UninterpretedSort

_STATE = re.compile(r"\bs\.(\w+)")


@dataclass(frozen=True)
class Theory:
    """Everything to prove about a machine, and everything that may be used."""

    machine: Machine
    rankings: tuple[Ranking, ...] = ()

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """The claims about every state that are shown by consecution."""
        for prop in self.machine.properties:
            for param in prop.params:
                if param.is_set:
                    raise DefinitionError(
                        f"{prop.name}: a property for all sets {param.name} is beyond first order: say it of one element"
                    )
        sums = tuple(counts.sum_claim(self.machine, c) for c in counts.over_enums(self.machine))
        return (
            *property_claims(self.machine),
            *range_claims(self.machine, frozenset(self.capacities)),
            *sums,
        )

    @cached_property
    def sorts(self) -> tuple[UninterpretedSort, ...]:
        """The uninterpreted sorts of the machine."""
        return self.machine.sorts

    @cached_property
    def capacities(self) -> dict[str, str]:
        """Counters whose upper end is a constant that only has to be large enough."""
        return counts.capacities(self.machine)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What may be assumed of the state before a step."""
        exact = counts.over_individuals(self.machine)
        return (
            *assumptions(self.claims),
            *(a for count in exact for a in counts.consequences(self.machine, count, self._allowed)),
        )

    @cached_property
    def _alternations(self) -> frozenset[tuple[str, str]]:
        return frozenset(alternation_edges(self.machine))

    def _allowed(self, term: t.Term) -> bool:
        return not find_cycle(self._alternations | alternations(term))

    @cached_property
    def obligations(self) -> tuple[Obligation, ...]:
        """All obligations, frame ones included, in order of the claims."""
        machine = self.machine
        found: list[Obligation] = []
        for claim in self.claims:
            found += state_obligations(machine, claim)
        for count in counts.over_individuals(machine):
            found += counts.obligations(machine, count)
        for prop in machine.properties:
            if prop.kind == "step":
                found += step_obligations(machine, prop)
        for place, ranking in enumerate(self.rankings):
            found += progress.obligations(machine, ranking, self.rankings[:place])
        found += enabled_obligations(machine)
        return tuple(found)

    @cached_property
    def switches(self) -> dict[str, Assumption]:
        """Switch literal -> assumption."""
        return {f"a.{i}": a for i, a in enumerate(self.assumptions)}

    def mask(self, names: Iterable[str]) -> int:
        """A set of state variables as bits."""
        bits = self._bits
        return sum(bits[name] for name in set(names))

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {v.name: 1 << place for place, v in enumerate(self.machine.vars)}

    @cached_property
    def masks(self) -> dict[str, int]:
        """What each assumption reads, by switch, as bits."""
        return {s: self.mask(a.reads) for s, a in self.switches.items()}

    @cached_property
    def texts(self) -> dict[tuple[object, ...], str]:
        """States of known sizes as text, kept for the next search of that size."""
        return {}

    @cached_property
    def preamble(self) -> str:
        """Declarations, and each assumption below its switch."""
        lines = [declarations(self.machine)]
        for switch, assumption in self.switches.items():
            lines.append(f"(declare-const {switch} Bool)(assert (=> {switch} {text(assumption.term)}))")
        return "\n".join(lines)

    def ask(self, obligation: Obligation, without: frozenset[str] = frozenset()) -> Question:
        """What to ask a solver that holds the preamble; the claims `without` must not be used."""
        body, guards, stage = obligation.body, 0, ""
        if body.action is not None:
            guards, stage = len(body.action.guards), self._stage(body.action)
        said = question(body.params[body.own_params :], obligation.asserted[guards:])
        seen = frozenset(_STATE.findall(stage)).union(_STATE.findall(said))
        return Question(self, obligation, stage, said, seen, without)

    def _stage(self, action: Action) -> str:
        if action.name not in self._stages:
            self._stages[action.name] = question(action.params, (g.term for g in action.guards))
        return self._stages[action.name]

    @cached_property
    def _stages(self) -> dict[str, str]:
        return {}

    def beside(self, obligation: Obligation, near: Iterable[Count]) -> tuple[Assumption, ...]:
        """What exact counts say beside an obligation's parameters."""
        params = obligation.body.params
        return tuple(a for c in near for a in counts.beside(self.machine, c, params, self._allowed))


@dataclass(frozen=True)
class Question:
    """One obligation put to a solver: first with what is at hand, then with everything.

    `stage` declares the parameters of the action and asserts its guards, the same for all obligations about the action, so
    that a solver can keep it from one to the next. `seen` are the state variables that it reads. At hand are the
    assumptions that read nothing else, and what counters among them say beside the parameters; everything adds the other
    assumptions, and what the other counts say.
    """

    theory: Theory
    obligation: Obligation
    stage: str
    said: str
    seen: frozenset[str]
    without: frozenset[str] = frozenset()

    @cached_property
    def shared(self) -> dict[str, Assumption]:
        """The assumptions of the theory that may be used."""
        if self.obligation.initial:
            return {}
        return {s: a for s, a in self.theory.switches.items() if a.of not in self.without}

    @cached_property
    def close(self) -> dict[str, Assumption]:
        """Assumptions about the parameters that are at hand."""
        return self._beside("l", lambda c: c.counter in self.seen)

    @cached_property
    def far(self) -> dict[str, Assumption]:
        """Assumptions about the parameters from the other counts whose members it may change."""
        return self._beside("m", lambda c: c.counter not in self.seen and bool(counts.reads(c) & self.seen))

    def _beside(self, prefix: str, wanted: Callable[[Count], bool]) -> dict[str, Assumption]:
        if self.obligation.initial:
            return {}
        chosen = filter(wanted, counts.over_individuals(self.theory.machine))
        allowed = (a for a in self.theory.beside(self.obligation, chosen) if a.of not in self.without)
        return {f"{prefix}.{i}": a for i, a in enumerate(allowed)}

    @cached_property
    def usable(self) -> dict[str, Assumption]:
        """Switch -> assumption for everything that may be used."""
        return {**self.shared, **self.close, **self.far}

    def claims_of(self, core: Iterable[str]) -> tuple[str, ...]:
        """The claims behind the switches of a core."""
        # Most cores need nothing far, so that `far` is not even made for them.
        known = {**self.shared, **self.close}
        return tuple(dict.fromkeys((known[s] if s in known else self.far[s]).of for s in core))

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The switches of what is at hand."""
        unseen = ~self.theory.mask(self.seen)
        masks = self.theory.masks
        return tuple(s for s in self.shared if not masks[s] & unseen) + tuple(self.close)

    @property
    def text(self) -> str:
        """Parameters, what is asserted of them, and the assumptions at hand about them."""
        return "\n".join((self.said, *(_switched(s, a) for s, a in self.close.items())))

    @property
    def more(self) -> str:
        """The other assumptions about the parameters."""
        return "\n".join(_switched(s, a) for s, a in self.far.items())


def _switched(switch: str, assumption: Assumption) -> str:
    return f"(declare-const {switch} Bool)(assert (=> {switch} {text(assumption.term)}))"


def script(theory: Theory, obligation: Obligation, switches: Iterable[str] | None = None) -> str:
    """A self-contained SMT-LIB script for one obligation: `unsat` means proved. By default with all it may use."""
    usable = theory.ask(obligation).usable
    chosen = set(usable) if switches is None else set(switches)
    lines = [f"; {obligation.name}", "(set-logic ALL)", declarations(theory.machine)]
    lines.append(question(obligation.body.params, obligation.asserted))
    lines += [f"; {a.name}\n(assert {text(a.term)})" for s, a in usable.items() if s in chosen]
    return "\n".join((*lines, "(check-sat)")) + "\n"
