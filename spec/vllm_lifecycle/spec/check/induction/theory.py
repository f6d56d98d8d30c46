"""A machine as one solver session: its declarations, and its assumptions below switches.

`Theory` collects, for a machine, all claims about every state with their obligations, what may be assumed of a state before a
step, and the text of every question. It knows no solver; `Prover` asks one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from vllm_lifecycle.spec.check.induction import counts
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
from vllm_lifecycle.spec.check.induction.smtlib import declarations, question, text
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError


@dataclass(frozen=True)
class Theory:
    """Everything to prove about a machine, and everything that may be used."""

    machine: Machine

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
    def capacities(self) -> dict[str, str]:
        """Counters whose upper end is a constant that only has to be large enough."""
        found = {v.name: counts.capacity(self.machine, v.name) for v in self.machine.vars}
        return {name: constant for name, constant in found.items() if constant is not None}

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What may be assumed of the state before a step."""
        exact = counts.over_individuals(self.machine)
        return (
            *assumptions(self.claims),
            *(a for count in exact for a in counts.consequences(self.machine, count)),
        )

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
        found += enabled_obligations(machine)
        return tuple(found)

    @cached_property
    def switches(self) -> dict[str, Assumption]:
        """Switch literal -> assumption."""
        return {f"a.{i}": a for i, a in enumerate(self.assumptions)}

    @cached_property
    def preamble(self) -> str:
        """Declarations, and each assumption below its switch."""
        lines = [declarations(self.machine)]
        for switch, assumption in self.switches.items():
            lines.append(f"(declare-const {switch} Bool)(assert (=> {switch} {text(assumption.term)}))")
        return "\n".join(lines)

    def relevant(self, obligation: Obligation) -> tuple[str, ...]:
        """Switches of the assumptions that read nothing but what the obligation reads."""
        if obligation.initial:
            return ()
        seen = obligation.reads
        return tuple(s for s, a in self.switches.items() if a.reads <= seen)

    def all_switches(self, obligation: Obligation) -> tuple[str, ...]:
        """Every switch that the obligation may use."""
        return () if obligation.initial else tuple(self.switches)


def script(theory: Theory, obligation: Obligation, switches: Iterable[str]) -> str:
    """A self-contained SMT-LIB script for one obligation: `unsat` means proved."""
    chosen = set(switches)
    lines = [f"; {obligation.name}", "(set-logic ALL)", declarations(theory.machine)]
    lines += [f"(assert {text(a.term)}) ; {a.name}" for s, a in theory.switches.items() if s in chosen]
    lines += [question(obligation.params, obligation.asserted), "(check-sat)"]
    return "\n".join(lines) + "\n"
