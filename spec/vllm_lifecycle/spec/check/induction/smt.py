"""The only file that imports z3: a session that takes SMT-LIB text and answers text.

A session has its own z3 context, so that nothing of one proof is known in another: names are global within a context.
Declarations and assumptions are handed over once, each assumption below a switch; a question is asked within push and pop,
under the switches it may use. z3 then needs a fraction of a millisecond for a question that follows from one step of
thought, and the core of an "unsat" comes for free. Quantifiers: matching, then model-based instantiation (MBQI), which
is complete for the fragment without cycles of alternation.

Options given to one session are also z3's defaults for sessions yet to come: a session sets all that it relies on. An
answer is `sat`, `unsat` or `unknown`, whatever else z3 says is a `SolverError` (an internal error of this package, since the
text is made here).
"""

from __future__ import annotations

from typing import Protocol

import z3


class SolverError(RuntimeError):
    """A solver refused the text it was given."""


class TextSolver(Protocol):
    """What takes SMT-LIB commands and answers what they print."""

    def run(self, commands: str) -> str:
        """Execute commands; the output, stripped. SolverError when one is refused."""
        ...


class Z3:
    """A z3 session with its own context, random seed and time limit per question."""

    def __init__(self, seed: int = 0, timeout_ms: int = 5000, *, quantifiers: bool = True) -> None:
        self._context = z3.Context()
        options = [
            ":produce-unsat-cores true",
            ":produce-models true",
            f":timeout {timeout_ms}",
            ":rlimit 0",
            f":smt.random_seed {seed}",
            f":sat.random_seed {seed}",
            ":smt.auto_config false",
        ]
        if quantifiers:
            options.append(":smt.mbqi true")
        self.run("\n".join(f"(set-option {o})" for o in options))

    def run(self, commands: str) -> str:
        """Execute commands; the output, stripped."""
        try:
            output = z3.Z3_eval_smtlib2_string(self._context.ref(), commands)
        except z3.Z3Exception as error:
            raise SolverError(f"z3: {error}") from None
        if "(error" in output:
            raise SolverError(f"z3: {output.strip()}")
        return str(output).strip()


def version() -> str:
    """The version of z3."""
    return str(z3.get_version_string())
