"""Proving a machine: all obligations, and what they establish.

A claim is established when each of its obligations is proved and every claim that those proofs leaned on is established
too: the largest set of claims that carry each other, since together they are one inductive invariant. A counterexample to
induction does not refute a claim (its state may be unreachable): the claim is not established. Only a claim that is false in
the initial state is refuted here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_lifecycle.spec.check.induction import counts
from vllm_lifecycle.spec.check.induction.obligations import Obligation, enabled_claim, range_claim
from vllm_lifecycle.spec.check.induction.pool import discharge_all
from vllm_lifecycle.spec.check.induction.prover import GOOD, SEEDS, TIMEOUT_MS, Answer, Prover, Result
from vllm_lifecycle.spec.check.induction.ranking import Ranking, SetEntry
from vllm_lifecycle.spec.check.induction.smt import version
from vllm_lifecycle.spec.check.induction.theory import Theory
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict, worst
from vllm_lifecycle.spec.lang.machine import Fairness, Machine

Progress = Callable[[int, int], None]
POSSIBLE = "every action is possible"


@dataclass(frozen=True)
class Proof:
    """Results of all obligations asked, and one verdict per claim."""

    theory: Theory
    seeds: tuple[int, ...]
    results: tuple[Result, ...]
    seconds: float
    unfinished: frozenset[str] = frozenset()
    _verdicts: list[Verdict] = field(default_factory=list, repr=False, compare=False)

    @property
    def engine(self) -> str:
        """Who answers."""
        return f"induction/z3 {version()}"

    @property
    def scope(self) -> str:
        """For what the answers hold."""
        return f"any number of {', '.join(s.name for s in self.theory.sorts)} (one of each at least)"

    @property
    def numbers(self) -> dict[str, int]:
        """How many obligations had which outcome, and how many had to be asked again."""
        found = Counter(r.status.value for r in self.results)
        return {
            **{s.value: found[s.value] for s in Answer},
            "asked again": sum(r.retried for r in self.results),
        }

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that establish nothing."""
        return tuple(r for r in self.results if r.status not in GOOD)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One per property, range and count, and one for the possibility of every action."""
        if not self._verdicts:
            self._verdicts.extend(self._judge())
        return tuple(self._verdicts)

    @property
    def outcome(self) -> Outcome:
        """The worst of the verdicts."""
        return worst(self.verdicts)

    @property
    def uses(self) -> dict[str, tuple[str, ...]]:
        """Obligation -> claims that its proof leaned on (minimal when proved with `cores`)."""
        return {r.obligation.name: r.uses for r in self.results if r.status is Answer.PROVED}

    def verdict(self, claim: str) -> Verdict:
        """The verdict of one claim; KeyError when it was not asked."""
        for verdict in self.verdicts:
            if verdict.claim == claim:
                return verdict
        raise KeyError(claim)

    def _by_claim(self) -> dict[str, list[Result]]:
        found: dict[str, list[Result]] = {}
        for result in self.results:
            found.setdefault(result.obligation.claim, []).append(result)
        return found

    def established(self) -> frozenset[str]:
        """The largest set of claims that carry each other. What was not asked in this proof is taken for granted."""
        groups = self._by_claim()
        holding = {
            c for c, rs in groups.items() if c not in self.unfinished and all(r.status in GOOD for r in rs)
        }
        while leaning := {c for c in holding if self._leans_on(c, groups) & (groups.keys() - holding)}:
            holding -= leaning
        return frozenset(holding)

    def leans_on(self, claim: str) -> frozenset[str]:
        """The claims that the proof of one leaned on directly."""
        return self._leans_on(claim, self._by_claim())

    def _leans_on(self, claim: str, groups: Mapping[str, list[Result]]) -> frozenset[str]:
        """The claims that the proofs of one leaned on, and the progress claims that its steps wait for."""
        used = {u for r in groups.get(claim, ()) for u in r.uses}
        ranked = (r for r in self.theory.rankings if r.name == claim)
        return frozenset(used | {s.after for r in ranked for s in r.steps if s.after is not None})

    def _judge(self) -> Iterable[Verdict]:
        groups, holding = self._by_claim(), self.established()
        possible = {enabled_claim(a.name) for a in self.theory.machine.actions}
        for claim, results in groups.items():
            if claim not in possible:
                yield self._verdict(claim, results, holding, groups)
        asked = [r for c, rs in groups.items() if c in possible for r in rs]
        if asked:
            vacuous = [r.obligation.action or "" for r in asked if r.status not in GOOD]
            reason = (
                f"{', '.join(vacuous)}: {next(r.note for r in asked if r.status not in GOOD)}"
                if vacuous
                else ""
            )
            outcome = Outcome.NOT_ESTABLISHED if vacuous else Outcome.HOLDS
            scope = "some state that keeps the invariants"
            yield Verdict(
                POSSIBLE, outcome, self.engine, scope, reason=reason, numbers={"obligations": len(asked)}
            )

    def _verdict(
        self, claim: str, results: list[Result], holding: frozenset[str], groups: dict[str, list[Result]]
    ) -> Verdict:
        bad = [r for r in results if r.status not in GOOD]
        outcome, reason, numbers = Outcome.HOLDS, "", self._numbers(results)
        if claim not in holding:
            outcome, reason = Outcome.NOT_ESTABLISHED, self._reason(claim, results, holding, groups)
            shown = [r.counterexample for r in bad if r.counterexample is not None]
            if shown:
                numbers["counterexamples to induction"] = "\n".join(map(str, shown))
            if any(c.obligation.initial for c in shown):
                outcome, reason = Outcome.REFUTED, "the initial state violates it"
        return Verdict(
            claim, outcome, self.engine, self.scope, self._assumptions(claim, groups), reason, numbers=numbers
        )

    def _numbers(self, results: list[Result]) -> dict[str, object]:
        return {
            "obligations": len(results),
            "frame": sum(r.status is Answer.FRAME for r in results),
            "seeds": list(self.seeds),
            "seconds": round(sum(r.seconds for r in results), 3),
        }

    def _reason(
        self, claim: str, results: list[Result], holding: frozenset[str], groups: dict[str, list[Result]]
    ) -> str:
        failed = [r for r in results if r.status is Answer.FAILED]
        if failed:
            return f"not inductive: {', '.join(r.obligation.label for r in failed)}"
        unknown = [r for r in results if r.status is Answer.UNKNOWN]
        if unknown:
            return "; ".join(f"{r.obligation.label}: {r.note}" for r in unknown)
        if claim in self.unfinished:
            return "interrupted before all obligations were asked"
        lost = sorted(
            u for u in self._leans_on(claim, groups) if u != claim and u in groups and u not in holding
        )
        return f"its proof leans on {', '.join(lost)}, which is not established"

    def _assumptions(self, claim: str, groups: dict[str, list[Result]]) -> tuple[str, ...]:
        reached, front = {claim}, [claim]
        while front:
            new = self._leans_on(front.pop(), groups) - reached
            reached |= new
            front += new
        machine = self.theory.machine
        said = [
            f"finitely many {c.over.sort}"
            for c in counts.over_individuals(machine)
            if counts.count_claim(c) in reached
        ]
        for c in counts.over_individuals(machine):
            if c.counter in self.theory.capacities and range_claim(c.counter) in reached:
                said.append(f"{self.theory.capacities[c.counter]} is at least the number of {c.over.sort}")
        said += self._fairness(reached)
        granted = sorted(reached - set(groups))
        if granted:
            said.append(f"taken for granted, not asked here: {', '.join(granted)}")
        if machine.dropped_guards:
            said.append(
                f"{len(machine.dropped_guards)} guards about other modules dropped (more behaviour, never less)"
            )
        return tuple(dict.fromkeys(said))

    def _fairness(self, claims: set[str]) -> Iterator[str]:
        ranked = [r for r in self.theory.rankings if r.name in claims]
        used = {step.action for r in ranked for step in r.steps}
        for kind in (Fairness.WEAK, Fairness.STRONG):
            fair = [a.name for a in self.theory.machine.actions if a.name in used and a.fairness is kind]
            if fair:
                yield f"{kind.value} fairness of {', '.join(fair)}"
        yield from (f"never: {r.unless}" for r in ranked if r.unless)
        entries = [e for r in ranked for e in r.rank if isinstance(e, SetEntry)]
        yield from (f"finitely many {p.sort}" for e in entries for p in e.params)

    def __str__(self) -> str:
        numbers = ", ".join(f"{n} {what}" for what, n in self.numbers.items() if n)
        lines = [
            f"{self.engine}: {len(self.results)} obligations ({numbers}), seeds {self.seeds}, {self.seconds:.1f} s"
        ]
        for result in self.failures:
            lines.append(str(result.counterexample or f"{result.obligation.name}: {result.note}"))
        return "\n".join(lines)


def prove(
    machine: Machine,
    seeds: Sequence[int] = SEEDS,
    timeout_ms: int = TIMEOUT_MS,
    jobs: int = 2,
    cores: bool = False,
    progress: Progress | None = None,
    rankings: Iterable[Ranking] = (),
) -> Proof:
    """Prove every claim of a machine for any number of individuals; `cores` makes the table of uses minimal.

    Progress claims are proved as far as `rankings` gives them ranks, in the order in which they lean on each other.
    """
    theory = Theory(machine, tuple(rankings))
    return _run(Prover(theory, seeds, timeout_ms, minimal_cores=cores), theory.obligations, jobs, progress)


def prove_property(
    machine: Machine,
    name: str,
    seeds: Sequence[int] = SEEDS[:1],
    timeout_ms: int = TIMEOUT_MS,
    rankings: Iterable[Ranking] = (),
) -> Proof:
    """One claim, with all claims that its proofs lean on, and theirs: nothing is taken for granted."""
    theory = Theory(machine, tuple(rankings))
    prover = Prover(theory, seeds, timeout_ms)
    asked, new = frozenset[str](), frozenset((name,))
    results: dict[str, Result] = {}
    began = time.perf_counter()
    while new:
        chosen = [o for o in theory.obligations if o.claim in new]
        if not chosen and new == {name}:
            machine.claim(name)
        found = _run(prover, chosen, 1, None)
        if found.unfinished:
            return replace(
                found, results=(*results.values(), *found.results), unfinished=found.unfinished | asked
            )
        results |= {r.obligation.name: r for r in found.results}
        asked |= new
        new = frozenset().union(*(found.leans_on(c) for c in new)) - asked
    ordered = [o for o in theory.obligations if o.name in results]
    _lean_on_what_holds(prover, results, ordered)
    return Proof(theory, prover.seeds, tuple(results[o.name] for o in ordered), time.perf_counter() - began)


def prove_actions(
    machine: Machine,
    actions: Iterable[str],
    seeds: Sequence[int] = SEEDS[:1],
    timeout_ms: int = TIMEOUT_MS,
    rankings: Iterable[Ranking] = (),
) -> Proof:
    """Every claim, but only what the given actions do: which claims a changed action breaks."""
    wanted = frozenset(actions)
    theory = Theory(machine, tuple(rankings))
    chosen = [o for o in theory.obligations if o.action in wanted]
    return _run(Prover(theory, seeds, timeout_ms), chosen, 1, None)


def _run(prover: Prover, obligations: Sequence[Obligation], jobs: int, progress: Progress | None) -> Proof:
    began = time.perf_counter()
    results: dict[str, Result] = {}
    unfinished: frozenset[str] = frozenset()
    try:
        for result in discharge_all(prover, obligations, jobs, progress):
            results[result.obligation.name] = result
        _lean_on_what_holds(prover, results, obligations)
    except KeyboardInterrupt:
        unfinished = frozenset(o.claim for o in obligations if o.name not in results)
    ordered = tuple(results[o.name] for o in obligations if o.name in results)
    return Proof(prover.theory, prover.seeds, ordered, time.perf_counter() - began, unfinished)


def _lean_on_what_holds(
    prover: Prover, results: dict[str, Result], obligations: Sequence[Obligation]
) -> None:
    """Ask again, without the claims that do not hold, what was proved by means of them."""
    lost = {r.obligation.claim for r in results.values() if r.status not in GOOD}
    while again := [o for o in obligations if o.claim not in lost and lost & set(results[o.name].uses)]:
        for obligation in again:
            result = prover.discharge(obligation, frozenset(lost))
            if result.status is Answer.PROVED:
                results[obligation.name] = result
            else:
                lost.add(obligation.claim)
