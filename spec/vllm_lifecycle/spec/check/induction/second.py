"""A second opinion: the proved obligations put to cvc5, as SMT-LIB, one script each.

cvc5 is optional (`pip install 'vllm-lifecycle[cvc5]'`). It gets, for each obligation, the assumptions of the claims that
z3's proof leaned on. `unsat` agrees; `sat` contradicts, and refutes trust in the proof; `unknown` or a time-out says nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from vllm_lifecycle.spec.check.induction.obligations import Obligation
from vllm_lifecycle.spec.check.induction.prove import Proof
from vllm_lifecycle.spec.check.induction.prover import Answer
from vllm_lifecycle.spec.check.induction.smt import SolverError
from vllm_lifecycle.spec.check.induction.theory import Theory, script
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

CLAIM = "cvc5 agrees with every proof"
MISSING = "cvc5 is not installed: pip install 'vllm-lifecycle[cvc5]'"
TIMEOUT_MS = 5000


def second_opinion(
    proof: Proof, timeout_ms: int = TIMEOUT_MS, progress: Callable[[int, int], None] | None = None
) -> Verdict:
    """Put every proved obligation of a proof to cvc5; holds when it agrees with all."""
    try:
        ask = Cvc5(timeout_ms)
    except ImportError:
        return Verdict(CLAIM, Outcome.NOT_ESTABLISHED, "cvc5", proof.scope, reason=MISSING)
    began = time.perf_counter()
    bodies = {o.name: o for o in proof.theory.obligations}
    proved = [(bodies[r.obligation.name], r.uses) for r in proof.results if r.status is Answer.PROVED]
    answers: dict[str, str] = {}
    for number, (obligation, uses) in enumerate(proved, 1):
        answers[obligation.name] = ask(script_for(proof.theory, obligation, uses))
        if progress is not None:
            progress(number, len(proved))
    counted = Counter(answers.values())
    outcome, reason = Outcome.HOLDS, ""
    if counted["unsat"] < len(answers) or not answers:
        outcome = Outcome.REFUTED if counted["sat"] else Outcome.NOT_ESTABLISHED
        wanted = "sat" if counted["sat"] else "unknown"
        named = [name for name, answer in answers.items() if answer == wanted]
        reason = f"{wanted} for {len(named)}: {'; '.join(named[:5])}" if named else "nothing was proved"
    numbers = {"obligations": len(answers), **counted, "seconds": round(time.perf_counter() - began, 1)}
    return Verdict(CLAIM, outcome, f"cvc5 {ask.version}", proof.scope, reason=reason, numbers=numbers)


def script_for(theory: Theory, obligation: Obligation, uses: tuple[str, ...]) -> str:
    """The script of an obligation with the assumptions that the named claims give."""
    usable = theory.ask(obligation).usable
    return script(theory, obligation, [s for s, a in usable.items() if a.of in uses])


class Cvc5:
    """Answers scripts with `sat`, `unsat` or `unknown`; ImportError when cvc5 is missing."""

    def __init__(self, timeout_ms: int) -> None:
        import cvc5

        self._cvc5 = cvc5
        self._timeout = str(timeout_ms)
        self.version = str(cvc5.__version__)

    def __call__(self, text: str) -> str:
        """The answer to a script; SolverError when cvc5 refuses it."""
        solver = self._cvc5.Solver()
        solver.setOption("tlimit-per", self._timeout)
        solver.setOption("enum-inst", "true")
        parser = self._cvc5.InputParser(solver)
        parser.setStringInput(self._cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
        symbols = parser.getSymbolManager()
        answer = ""
        try:
            while not (command := parser.nextCommand()).isNull():
                answer = str(command.invoke(solver, symbols)).strip() or answer
        except RuntimeError as error:
            raise SolverError(f"cvc5: {error}") from None
        answer = answer.partition(" ")[0]  # `unknown (INCOMPLETE)` names the reason
        if answer not in ("sat", "unsat", "unknown"):
            raise SolverError(f"cvc5: {answer}")
        return answer
