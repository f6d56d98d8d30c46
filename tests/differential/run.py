"""Runs groups of cases: how many steps agreed, which intended differences were met, and the first that nothing explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.differential.generate import Generator
from tests.differential.groups import GROUPS
from tests.differential.pair import Divergence, Pair
from tests.differential.rows import explained
from tests.differential.settings import Case, Event, Setup
from tests.differential.shrink import shrink

from vllm_lifecycle.adapters.vllm.config import load_class

STOCK = "vllm.v1.core.sched.scheduler:Scheduler"
STOCK_ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
MENDED = ("tests.differential.mended:Scheduler", "tests.differential.mended:AsyncScheduler")
MENDED_LATER = ("tests.differential.mended032:Scheduler", "tests.differential.mended032:AsyncScheduler")
STEPS_OF_A_CASE = 80


@dataclass(frozen=True)
class Classes:
    """The schedulers that are held against each other, for synchronous and asynchronous setups."""

    ours: type[Any]
    ours_async: type[Any]
    reference: type[Any]
    reference_async: type[Any]

    @classmethod
    def named(cls, ours: str, ours_async: str, plain: bool = True) -> Classes:
        """From `pkg.mod:Class`; `plain`: against the original as it is, else with known defects mended; raises Unusable."""
        later = hasattr(import_module("vllm.v1.core.sched.interface"), "PauseState")
        mended = MENDED_LATER if later else MENDED
        reference = (STOCK, STOCK_ASYNC) if plain else mended
        return cls(*(load_class(n) for n in (ours, ours_async or ours, *reference)))

    def pair(self, setup: Setup) -> Pair:
        """Fresh schedulers of the setup."""
        if setup.asynchronous:
            return Pair(self.reference_async, self.ours_async, setup)
        return Pair(self.reference, self.ours, setup)


@dataclass
class Failure:
    """An unexplained difference, as small as it could be made."""

    group: str
    seed: int
    number: int
    case: Case
    steps: int
    pair: Pair

    def __str__(self) -> str:
        divergence = self.pair.divergence
        assert divergence is not None
        shown = [f"    {d}" for d in divergence.differences[:8]]
        hidden = len(divergence.differences) - len(shown)
        more = [f"    and {hidden} more"] if hidden > 0 else []
        traces = [
            f"  {name} raised:\n{side.trace}"
            for name, side in zip(("the reference", "ours"), self.pair.sides, strict=True)
            if side.trace
        ]
        what = f"group {self.group}, seed {self.seed}, case {self.number}: {divergence.call} differs at step "
        return "\n".join(
            [
                f"{what}{self.pair.steps} (found after {self.steps} steps, then made small)",
                f"  {self.case}",
                f"  event {divergence.event}, {divergence.call}:",
                *shown,
                *more,
                f"  reference: {self.pair.sides[0].view()}",
                f"  ours:      {self.pair.sides[1].view()}",
                *traces,
            ]
        )


@dataclass
class Report:
    """What the cases of one group came to."""

    group: str
    steps: int = 0
    cases: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    """Intended differences, and how many cases met each."""
    ended: Counter[str] = field(default_factory=Counter)
    """Cases that ended because both sides raised the same."""
    met: Counter[str] = field(default_factory=Counter)
    """What the cases reached (witnesses.py)."""
    mended: Counter[str] = field(default_factory=Counter)
    """How often a mended defect of the original made a difference."""
    failure: Failure | None = None


def play(classes: Classes, setup: Setup, events: tuple[Event, ...]) -> Pair:
    """Replay a list of events."""
    pair = classes.pair(setup)
    pair.run(events)
    return pair


def run_group(
    classes: Classes,
    group: str,
    steps: int,
    seed: int,
    first: int = 0,
    progress: Callable[[Report], None] = lambda report: None,
    small: bool = True,
) -> Report:
    """Play cases of the group until so many steps agreed, or an unexplained difference, made `small`; raises Unusable."""
    report = Report(group)
    number = first
    while report.steps < steps:
        rng = Random(f"{group} {seed} {number}")
        setup, mix = GROUPS[group](rng)
        pair = classes.pair(setup)
        events = Generator(rng, setup, mix).play(pair, min(STEPS_OF_A_CASE, steps))
        report.cases += 1
        report.steps += pair.steps - pair.over()
        report.met += pair.met
        report.mended += getattr(pair.reference.scheduler, "met", Counter())
        if pair.ended:
            report.ended[pair.ended] += 1
        if pair.divergence:
            row = explained(pair.divergence.call, pair.divergence.differences, pair)
            if row is None:
                case = Case(setup, events)
                report.failure = (
                    _small(classes, group, seed, number, case, pair)
                    if small
                    else Failure(group, seed, number, case, pair.steps, pair)
                )
                break
            report.rows[row.name] += 1
        number += 1
        progress(report)
    return report


def _kind(divergence: Divergence | None) -> tuple[object, ...]:
    """What has to stay when a case is made small: the call and the first field that differs."""
    if divergence is None:
        return ()
    first = divergence.differences[0]
    field_name = first.path.split("[")[0].split(" ")[0]
    return divergence.call, field_name, first.reference if field_name == "raised" else None


def _small(classes: Classes, group: str, seed: int, number: int, case: Case, pair: Pair) -> Failure:
    wanted = _kind(pair.divergence)

    def fails(smaller: Case) -> bool:
        try:
            played = play(classes, smaller.setup, smaller.events)
        except Exception:  # the smaller setup or request is refused: not this failure
            return False
        found = played.divergence
        return (
            _kind(found) == wanted
            and found is not None
            and explained(found.call, found.differences, played) is None
        )

    small = shrink(case, fails)
    played = play(classes, small.setup, small.events)
    if not played.divergence:  # not the same twice: show what was seen
        small, played = case, pair
    return Failure(group, seed, number, small, pair.steps, played)


class _Tagged(msgspec.Struct):
    """A case in a file."""

    setup: Setup
    events: list[dict[str, Any]]


def save(case: Case, path: Path) -> None:
    """Write a case to a file, to be replayed."""
    events = [{"event": type(e).__name__, **msgspec.to_builtins(e)} for e in case.events]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(_Tagged(case.setup, events)), indent=1))


def load(path: Path) -> Case:
    """Read a case; raises ValueError."""
    kinds = {cls.__name__: cls for cls in Event.__args__}
    tagged = msgspec.json.decode(path.read_bytes(), type=_Tagged)
    events = [msgspec.convert(e, kinds[e.pop("event")]) for e in tagged.events]
    return Case(tagged.setup, tuple(events))
