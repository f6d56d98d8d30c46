"""`check TARGET`: a real scheduler class, driven by the explorer of the vLLM adapter; its findings as verdicts.

Nothing of vLLM is imported before the target is asked for, and a missing vLLM, a class that does not import or is no scheduler
is one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem, unknown
from vllm_lifecycle.adapters.cli.findings import Keeping, Kept, prepare, verdicts
from vllm_lifecycle.adapters.cli.services import positive
from vllm_lifecycle.adapters.report.model import Progress, Stage
from vllm_lifecycle.spec.check.verdict import Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.scope import Scope

CONTRACTS = ("legal", "hostile")


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Options of `check TARGET`."""

    target: str
    scopes: tuple[str, ...] = ()
    contract: str = "legal"
    seconds: float = 60.0
    seed: int = 0
    connector: str | None = None
    keeping: Keeping = field(default_factory=Keeping)
    hypothesis: int | None = None
    """Examples that Hypothesis draws in each scope, instead of the explorer's own search."""
    jobs: int | None = None
    """Processes that search at once; None leaves it to the explorer."""


def check_target(options: TargetOptions) -> list[Stage]:
    """The exploration of a real scheduler class, in the named scopes or in all of the contract's."""
    positive("--seconds", options.seconds)
    if options.hypothesis is not None:
        positive("--hypothesis", options.hypothesis)
    positive("--jobs", options.jobs)
    if options.contract not in CONTRACTS:
        raise UsageProblem(f"unknown contract {options.contract!r}: choose {' or '.join(CONTRACTS)}")
    if "." not in options.target and ":" not in options.target and options.target != "vllm":
        raise UsageProblem(
            f"{options.target!r} names no class: write pkg.mod:Class, or vllm, vllm:async, vllm:omni for theirs"
        )
    from vllm_lifecycle.adapters.vllm.config import SHORT
    from vllm_lifecycle.adapters.vllm.target import Unusable, check_connector, find_modules, portfolio
    from vllm_lifecycle.adapters.vllm.target import check_target as usable

    kept = prepare(options.keeping)
    target = SHORT.get(options.target, options.target)
    find_modules()
    try:
        version = usable(target)
        if options.connector is not None:
            check_connector(options.connector)
    except Unusable as why:
        raise UsageProblem(str(why)) from None
    on_offer = portfolio(target, options.contract)
    for name in options.scopes:
        if name not in on_offer:
            raise unknown(
                "scope", name, on_offer, f"with contract {options.contract} choose from {', '.join(on_offer)}"
            )
    scopes = [on_offer[name] for name in options.scopes or on_offer]
    if options.connector is not None:
        scopes = [scope.judging(options.connector) for scope in scopes if scope.connector]
    if not scopes:
        raise UsageProblem("--connector needs a scope with a connector: leave --scope out")
    with_it = "" if options.connector is None else f" with {options.connector}"
    title = f"exploration of {target}{with_it} on vLLM {version}, {options.contract} contract"
    return [Stage(title, lambda progress: _explore_target(target, scopes, options, kept, progress))]


def _explore_target(
    target: str, scopes: Sequence[Scope], options: TargetOptions, kept: Kept, progress: Progress
) -> Iterator[Verdict]:
    from vllm_lifecycle.adapters.vllm import correspondence, explore, parallel
    from vllm_lifecycle.adapters.vllm.config import Unusable

    jobs = options.jobs or parallel.default_jobs()
    try:
        found = explore.explore(
            target, scopes, options.seed, options.seconds, progress, options.hypothesis or 0, jobs
        )
    except (Unusable, correspondence.MissingSeam) as why:
        raise UsageProblem(str(why)) from None
    yield from verdicts(found, kept)


def reject_target_options(**given: object) -> None:
    """Reject options that only mean something for a scheduler class."""
    for name, value in given.items():
        if value is not None:
            raise UsageProblem(
                f"--{name} needs a scheduler to drive: name one, as in `vllm-lifecycle check vllm`"
            )
