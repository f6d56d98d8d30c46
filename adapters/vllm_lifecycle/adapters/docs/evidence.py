"""Evidence: what the engines answered, as a file beside the pages, with the digest of the specification it is about.

The file holds outcomes, bounds, counts and assumptions, no times, so the same answers give the same file. `record` takes them
from verdicts; nothing else writes it. A status on a page is `Status.of(...)`, never a word typed into a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from vllm_lifecycle.adapters.docs import blocks, custody, moves
from vllm_lifecycle.spec import scopes
from vllm_lifecycle.spec.check import coverage, mutation
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

NAME = "evidence.json"
BY = "vllm-lifecycle docs build --evidence"
MARK = f'"generated_by": "{BY}"'
"""What a file of evidence carries at its head."""
INDUCTION = "induction"
"""How the engine of a proof is called, up to its version."""


class Unreadable(ValueError):
    """A file of evidence that cannot be read; the text is one line with the repair."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer: `scope` says for what; `obligations` of a proof; the reason when the claim does not hold."""

    outcome: str
    scope: str
    engine: str = ""
    obligations: int = 0
    seeds: int = 0
    assumptions: tuple[str, ...] = ()
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is established."""
        return self.outcome == Outcome.HOLDS.value


class Search(msgspec.Struct, frozen=True):
    """How much of a named scope was searched."""

    scope: str
    states: int
    transitions: int
    depth: int
    complete: bool


class Refutation(msgspec.Struct, frozen=True):
    """A mutant's fate: `length` is the number of steps of the shortest trace on which the property falls."""

    outcome: str
    property: str
    scope: str
    length: int


class Example(msgspec.Struct, frozen=True):
    """The actions of the shortest way to something that must be reachable."""

    scope: str
    actions: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True):
    """Everything recorded, by name of the claim, scope, mutant, witness or holder; `never`: transitions never taken."""

    generated_by: str = BY
    spec: str = ""
    proofs: dict[str, Answer] = msgspec.field(default_factory=dict)
    explored: dict[str, Answer] = msgspec.field(default_factory=dict)
    searches: dict[str, Search] = msgspec.field(default_factory=dict)
    mutants: dict[str, Refutation] = msgspec.field(default_factory=dict)
    examples: dict[str, Example] = msgspec.field(default_factory=dict)
    holders: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    never: list[moves.Row] = msgspec.field(default_factory=list)

    def kills(self, claim: str) -> dict[str, Refutation]:
        """The mutants that fall by a property."""
        held = Outcome.HOLDS.value
        return {n: m for n, m in self.mutants.items() if m.property == claim and m.outcome == held}


EMPTY = Evidence()
"""What there is before the engines were asked."""


def record(spec: str, verdicts: Iterable[Verdict]) -> Evidence:
    """The evidence in the verdicts of `check`: proof, explorations, what the scopes cover together, mutants."""
    found = Evidence(spec=spec)
    names = {str(s): s.name for s in (*scopes.SCOPES, *blocks.SCOPES)}
    for verdict in verdicts:
        numbers = verdict.numbers
        if verdict.claim == custody.CLAIM:
            found.holders.update(numbers["matrix"])
        elif verdict.claim == moves.CLAIM:
            found.never.extend(numbers["never"])
        elif verdict.engine.startswith(INDUCTION):
            found.proofs[verdict.claim] = _answer(verdict)
        elif verdict.engine == coverage.ENGINE:
            found.explored[verdict.claim] = _answer(verdict)
        elif verdict.engine == mutation.ENGINE:
            found.mutants[numbers["mutant"]] = Refutation(
                verdict.outcome.value,
                numbers["property"],
                verdict.scope,
                numbers.get("length", len(verdict.trace)),
            )
        elif numbers.keys() >= {"states", "transitions", "depth", "complete"}:
            scope = names.get(verdict.scope, verdict.scope)
            found.searches[scope] = Search(
                verdict.scope,
                numbers["states"],
                numbers["transitions"],
                numbers["depth"],
                bool(numbers["complete"]),
            )
            _keep_example(found.examples, verdict, scope)
    return found


def _answer(verdict: Verdict) -> Answer:
    numbers: Mapping[str, object] = verdict.numbers
    obligations, seeds = numbers.get("obligations", 0), numbers.get("seeds", ())
    assert isinstance(obligations, int) and isinstance(seeds, list | tuple)
    return Answer(
        verdict.outcome.value,
        verdict.scope,
        verdict.engine,
        obligations,
        len(seeds),
        verdict.assumptions,
        verdict.reason,
    )


def _keep_example(examples: dict[str, Example], verdict: Verdict, scope: str) -> None:
    """The shortest trace of a witness, the first of equals."""
    if verdict.outcome is not Outcome.HOLDS or not verdict.trace:
        return
    known = examples.get(verdict.claim)
    if known is None or len(verdict.trace) < len(known.actions):
        examples[verdict.claim] = Example(scope, tuple(step.action for step in verdict.trace))


def dump(evidence: Evidence) -> str:
    """The file's text."""
    return msgspec.json.format(msgspec.json.encode(evidence), indent=1).decode() + "\n"


def read(folder: Path) -> Evidence:
    """The evidence beside the pages; EMPTY when there is none yet, Unreadable when it is broken."""
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Evidence)
    except FileNotFoundError:
        return EMPTY
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Unreadable(
            f"{path} cannot be read ({why}): write it again with `vllm-lifecycle docs build --evidence`"
        ) from None
