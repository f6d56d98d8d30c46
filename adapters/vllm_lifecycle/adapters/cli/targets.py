"""`check TARGET`: a real scheduler class, driven by the explorer of the vLLM adapter; its findings as verdicts.

Nothing of vLLM is imported before the target is asked for, and a missing vLLM, a class that does not import or is no scheduler
is one line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem, unknown
from vllm_lifecycle.adapters.cli.report import Progress, Stage
from vllm_lifecycle.adapters.cli.services import positive
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.scope import Scope

CONTRACTS = ("legal", "hostile")
EXPLORER = "explorer"


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Options of `check TARGET`."""

    target: str
    scopes: tuple[str, ...] = ()
    contract: str = "legal"
    seconds: float = 60.0
    seed: int = 0


def check_target(options: TargetOptions) -> list[Stage]:
    """The exploration of a real scheduler class, in the named scopes or in all of the contract's."""
    positive("--seconds", options.seconds)
    if options.contract not in CONTRACTS:
        raise UsageProblem(f"unknown contract {options.contract!r}: choose {' or '.join(CONTRACTS)}")
    if "." not in options.target and ":" not in options.target and options.target != "vllm":
        raise UsageProblem(
            f"{options.target!r} names no class: write pkg.mod:Class, or vllm for its own Scheduler"
        )
    sys.path.insert(0, "")  # as `python -m` does: the class may lie in the current folder
    from vllm_lifecycle.adapters.vllm import config
    from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO

    on_offer = {s.name: s for s in PORTFOLIO if s.level == options.contract}
    for name in options.scopes:
        if name not in on_offer:
            raise unknown(
                "scope", name, on_offer, f"with contract {options.contract} choose from {', '.join(on_offer)}"
            )
    target = config.STOCK if options.target == "vllm" else options.target
    try:
        version = config.vllm_version()
        config.load_class(target)
    except config.Unusable as why:
        raise UsageProblem(str(why)) from None
    scopes = [on_offer[name] for name in options.scopes or on_offer]
    title = f"exploration of {target} on vLLM {version}, {options.contract} contract"
    return [Stage(title, lambda progress: _explore_target(target, scopes, options, progress))]


def _explore_target(
    target: str, scopes: Sequence[Scope], options: TargetOptions, progress: Progress
) -> Iterator[Verdict]:
    from vllm_lifecycle.adapters.vllm import correspondence, explore
    from vllm_lifecycle.adapters.vllm.config import Unusable

    try:
        found = explore.explore(target, scopes, options.seed, options.seconds, progress)
    except (Unusable, correspondence.MissingSeam) as why:
        raise UsageProblem(str(why)) from None
    for finding in found.findings:
        steps = tuple(TraceStep(s.call, (), tuple((c, "") for c in s.changes)) for s in finding.steps)
        at = f" at {finding.site}" if finding.site else ""
        yield Verdict(
            finding.claim,
            Outcome.REFUTED,
            EXPLORER,
            finding.scope.name,
            reason=f"{finding.message}{at}; fault: {finding.fault}{f' ({finding.breach})' if finding.breach else ''}",
            trace=steps,
            numbers={
                "length": len(steps),
                "fault": finding.fault,
                "site": finding.site,
                "vllm": found.version,
            },
        )
    fallen = {f.scope.name for f in found.findings}
    for part in found.coverage:
        if part.scope not in fallen:
            outcome = Outcome.HOLDS if part.complete else Outcome.NOT_ESTABLISHED
            reason = "" if part.complete else f"cut off by {part.cut_by or 'time'}; nothing fell until then"
            numbers = {
                "states": part.states,
                "transitions": part.transitions,
                "depth": part.depth,
                "walks": part.walks,
            }
            yield Verdict("every property", outcome, EXPLORER, part.scope, reason=reason, numbers=numbers)


def reject_target_options(**given: object) -> None:
    """Reject options that only mean something for a scheduler class."""
    for name, value in given.items():
        if value is not None:
            raise UsageProblem(
                f"--{name} needs a scheduler to drive: name one, as in `vllm-lifecycle check vllm`"
            )
