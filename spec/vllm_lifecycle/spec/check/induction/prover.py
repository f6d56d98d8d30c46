"""Discharging obligations: one solver session per seed, each obligation asked on its own, under every seed.

Proved means: `unsat` under every seed. A question is first asked with the assumptions that read nothing but what the
obligation reads (a later seed: with those that the first one needed), then with all; `unsat` from fewer assumptions is
as good. What is not proved within a short time is a failure if there is a small counterexample that the evaluator
confirms; if not, it is asked for as long as the time limit allows. `unknown` is asked again in fresh sessions with other
seeds and more time; what stays unknown, what has no small counterexample, or where two seeds contradict each other, is
not established.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_lifecycle.spec.check.induction.counterexample import Counterexample, smallest
from vllm_lifecycle.spec.check.induction.obligations import Obligation
from vllm_lifecycle.spec.check.induction.smt import Z3, TextSolver
from vllm_lifecycle.spec.check.induction.theory import Question, Theory

SEEDS = (0, 1, 2)
TIMEOUT_MS = 10_000
FIRST_LIMIT = 200_000
QUICK_LIMIT = 2_000_000
"""Effort in z3's own units (about 3 million a second), so that the course of a proof does not hang on the machine's load."""
RETRY_SEEDS = (101, 102)


class Answer(Enum):
    """What became of an obligation."""

    FRAME = "frame"
    PROVED = "proved"
    POSSIBLE = "possible"
    FAILED = "failed"
    UNKNOWN = "unknown"


GOOD = frozenset({Answer.FRAME, Answer.PROVED, Answer.POSSIBLE})


@dataclass(frozen=True)
class Result:
    """The outcome of one obligation.

    `uses` are the claims that the proof leaned on (from unsat cores, minimal when asked for). `answers` are the solver's
    answers by seed; `retried` says that one of them was `unknown` at first.
    """

    obligation: Obligation
    status: Answer
    seconds: float = 0.0
    uses: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    retried: bool = False
    counterexample: Counterexample | None = None
    note: str = ""


class Prover:
    """Discharges the obligations of one theory in this process."""

    def __init__(
        self,
        theory: Theory,
        seeds: Sequence[int] = SEEDS,
        timeout_ms: int = TIMEOUT_MS,
        *,
        minimal_cores: bool = False,
    ) -> None:
        self.theory = theory
        self.seeds = tuple(seeds)
        self.timeout_ms = timeout_ms
        self.minimal_cores = minimal_cores
        self._sessions: dict[int, _Session] = {}

    def session(self, seed: int) -> _Session:
        """The session of a seed, holding the theory."""
        if seed not in self._sessions:
            self._sessions[seed] = self._fresh(seed, self.timeout_ms)
        return self._sessions[seed]

    def _fresh(self, seed: int, timeout_ms: int) -> _Session:
        solver = Z3(seed, timeout_ms)
        solver.run(self.theory.preamble)
        return _Session(solver)

    def discharge(self, obligation: Obligation, without: frozenset[str] = frozenset()) -> Result:
        """The outcome of one obligation; the claims `without` must not be used."""
        began = time.perf_counter()
        if obligation.frame:
            return Result(obligation, Answer.FRAME)
        if obligation.expect_model:
            return self._find_model(obligation, began)
        asked = self.theory.ask(obligation, without)
        answer, core = self._quickly(asked)
        if answer != "unsat" and not without:
            found = smallest(self.theory, obligation)
            if found is not None:
                seconds = time.perf_counter() - began
                return Result(obligation, Answer.FAILED, seconds, (), (answer,), counterexample=found)
        answers: list[str] = []
        retried = False
        for seed in self.seeds:
            if answer == "unsat" and seed == self.seeds[0]:
                answers.append(answer)
                continue
            first = core if answers and answers[0] == "unsat" else asked.first
            now, used = _ask(self.session(seed), asked, first)
            if now == "unknown":
                retried = True
                now, used = self._again(seed, asked)
            answers.append(now)
            core = core or used
            if now == "sat":
                break
        uses = asked.claims_of(core)
        seconds = time.perf_counter() - began
        if set(answers) == {"unsat"}:
            return Result(obligation, Answer.PROVED, seconds, uses, tuple(answers), retried)
        if "sat" in answers and "unsat" in answers:
            return Result(
                obligation,
                Answer.UNKNOWN,
                seconds,
                uses,
                tuple(answers),
                retried,
                note="the seeds contradict each other",
            )
        if without:
            note = "not without claims that are not established"
            return Result(obligation, Answer.UNKNOWN, seconds, uses, tuple(answers), retried, note=note)
        note = "the solver answers unknown"
        if "sat" in answers:
            note = "the solver has a counterexample, but none with few individuals and exact counts"
        return Result(obligation, Answer.UNKNOWN, seconds, (), tuple(answers), retried, note=note)

    def _quickly(self, asked: Question) -> tuple[str, tuple[str, ...]]:
        """The first seed's answer within a short time: what fails is better shown by a search for a small counterexample."""
        return _ask(self.session(self.seeds[0]), asked, asked.first, QUICK_LIMIT, shrink=self.minimal_cores)

    def _again(self, seed: int, asked: Question) -> tuple[str, tuple[str, ...]]:
        for other in RETRY_SEEDS:
            answer, used = _ask(self._fresh(seed + other, 4 * self.timeout_ms), asked, asked.first)
            if answer != "unknown":
                return answer, used
        return "unknown", ()

    def _find_model(self, obligation: Obligation, began: float) -> Result:
        found = smallest(self.theory, obligation)
        seconds = time.perf_counter() - began
        if found is not None:
            return Result(obligation, Answer.POSSIBLE, seconds, (), ("sat",), counterexample=found)
        note = "no state that keeps the invariants enables it, so that every claim about it is empty"
        return Result(obligation, Answer.UNKNOWN, seconds, (), ("unsat",), note=note)


class _Session:
    """A solver that holds a theory, and the stage of the last question for as long as the next one has the same."""

    def __init__(self, solver: TextSolver) -> None:
        self.solver = solver
        self.stage = ""

    def enter(self, stage: str) -> TextSolver:
        """The solver, with this stage set."""
        if stage != self.stage:
            if self.stage:
                self.solver.run("(pop)")
            if stage:
                self.solver.run(f"(push)\n{stage}")
            self.stage = stage
        return self.solver


def _ask(
    session: _Session, asked: Question, first: Sequence[str], limit: int = 0, *, shrink: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The answer, and the switches that an `unsat` needed; `first` are those to try, for a moment, before all are used."""
    solver = session.enter(asked.stage)
    solver.run(f"(push)\n{asked.text}")
    told = False
    try:
        if not set(first) <= {*asked.shared, *asked.close}:
            solver.run(asked.more)
            told = True
        answer = _check(solver, first, FIRST_LIMIT)
        if answer != "unsat":
            solver.run("" if told else asked.more)
            answer = _check(solver, tuple(asked.usable), limit)
        if answer != "unsat":
            return answer, ()
        core = _core(solver)
        return answer, _minimal(solver, core) if shrink else core
    finally:
        solver.run("(pop)")


def _check(solver: TextSolver, switches: Sequence[str], limit: int = 0) -> str:
    asked = f"(check-sat-assuming ({' '.join(switches)}))"
    # The limit is z3's for the whole process, whatever the session: it must not outlive the question.
    return solver.run(f"(set-option :rlimit {limit})\n{asked}\n(set-option :rlimit 0)" if limit else asked)


def _core(solver: TextSolver) -> tuple[str, ...]:
    return tuple(solver.run("(get-unsat-core)").strip("()").split())


def _minimal(solver: TextSolver, core: tuple[str, ...]) -> tuple[str, ...]:
    """A core none of whose members can be left out."""
    kept = list(core)
    for switch in core:
        fewer = [s for s in kept if s != switch]
        if _check(solver, fewer) == "unsat":
            inner = set(_core(solver))
            kept = [s for s in fewer if s in inner]
    return tuple(kept)
