"""Scopes: the bounds of an exploration, wrapped around the specification from outside.

A scope says how many individuals each sort has, the values of the rigid constants, which values enum parameters take, and
which features and modules are in. It never edits the specification: features only take behaviour away, modules only take
state away (with the guards that speak of it), and both are said in the verdict. A scope is found by its name, or written
down as sizes: `3x3` is 3 requests and 3 blocks, `3x3x2` two steps in flight besides.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.vocabulary import Status

AXES = ("Request", "Block", "Step", "Entry")
"""The sorts that the numbers of a written scope stand for, in order; a number left out is 1."""
LARGEST = 6
"""Most individuals per sort that a written scope may ask for: every subset of blocks is tried."""


@dataclass(frozen=True)
class Scope:
    """Bounds of an exploration; None for features or modules means all of them.

    With the modules named come those whose state theirs is computed from.
    """

    name: str
    sizes: Mapping[str, int]
    constants: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, tuple[Enum, ...]] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    modules: tuple[str, ...] | None = None
    doc: str = ""

    @property
    def domain(self) -> ev.Domain:
        """The individuals and constants to evaluate in."""
        individuals = {sort: tuple(range(size)) for sort, size in self.sizes.items()}
        return ev.Domain(individuals, {**defaults(self.sizes), **self.constants}, self.choices)

    def machine(self, system: Machine, about: str | None = None) -> Machine:
        """The machine within this scope; with `about`, only what that property can depend on (its cone of influence)."""
        result = system if self.features is None else system.with_features(self.features)
        if self.modules is not None:
            result = result.project(result.closure(self.modules))
        if about is not None:
            result = result.slice(result.claim(about).reads)
        return result

    def __str__(self) -> str:
        sizes = " x ".join(f"{n} {sort.lower()}{'s' if n != 1 else ''}" for sort, n in self.sizes.items())
        parts = [sizes]
        if self.features is not None:
            parts.append(f"features {', '.join(self.features)}")
        if self.modules is not None:
            parts.append(f"modules {', '.join(self.modules)}")
        return "; ".join(parts)


def defaults(sizes: Mapping[str, int]) -> dict[str, int]:
    """Constants that follow from the sizes unless a scope says otherwise."""
    requests, blocks = sizes.get("Request", 1), sizes.get("Block", 1)
    return {
        "max_tokens": 2,
        "max_num_seqs": requests,
        "max_requests": requests,
        "pool_blocks": blocks,
        "max_want": 1,
        "kv_connector": 1,
        "encoder_budget": sizes.get("Entry", 1),
        "handoff_stage": 1,
    }


_STOPS = {"Status": (Status.FINISHED_STOPPED,)}
LIFECYCLE = Scope(
    "lifecycle",
    {"Request": 3, "Block": 3, "Step": 1, "Entry": 1},
    {"handoff_stage": 0},
    _STOPS,
    ("core", "load", "load_failure", "send", "preemption"),
    ("engine", "queue", "steps", "custody", "handoff"),
    "requests, blocks, transfers and steps in flight, coupled by custody",
)
"""The world that a scope written as sizes is made of, unless it says otherwise."""


def _scope(name: str, sizes: str, features: str, modules: str, doc: str, **constants: int) -> Scope:
    numbers = dict(zip(AXES, map(int, sizes.split("x")), strict=True))
    return Scope(
        name, numbers, {"handoff_stage": 0, **constants}, _STOPS, tuple(features.split()), ("engine", "queue", *modules.split()), doc
    )


SCOPES: tuple[Scope, ...] = (
    LIFECYCLE,
    _scope(
        "sharing", "2x3x1x1", "core load load_failure send preemption window prefix sync_load reset", "prefix pool custody steps",
        "prefix hits, caching, eviction, partly failed loads, resets",
    ),
    _scope(
        "everything", "2x2x1x1",
        "core load load_failure send preemption window prefix handoff loss sync_load reset", "custody steps handoff prefix",
        "all that can happen to a block", handoff_stage=1,
    ),
    _scope("lost", "2x2x2x1", "core load send preemption loss", "custody steps", "transfers that are lost, and report after all"),
    _scope(
        "handoff", "2x2x1x1", "core handoff load send preemption chunks", "handoff custody membership chunks hooks steps",
        "hand-off to a later stage, triggered or at the end", handoff_stage=1,
    ),
    _scope(
        "queues", "3x1x1x1", "core grammar load preemption chunks refusal", "membership order chunks slots",
        "queues, their order, slots, waits of every kind", max_num_seqs=2,
    ),
    _scope(
        "sessions", "2x1x1x1", "core sessions preemption empty_output", "sessions membership tokens slots",
        "streaming sessions and their turns", max_num_seqs=1,
    ),
    _scope(
        "tokens", "2x1x2x1", "core load preemption empty_output reset", "tokens epochs steps",
        "token counters with two steps in flight", max_tokens=5,
    ),
    _scope("encoder", "2x1x2x2", "core encoder preemption", "encoder steps", "the encoder cache", encoder_budget=1),
    _scope(
        "admission", "3x2x1x1", "core load load_failure send preemption", "admission", "shares of the pool, in numbers",
        pool_blocks=3, max_want=2,
    ),
    _scope(
        "contract", "2x1x1x1", "core load send contract sleep load_failure reset sync_load", "sleep contract hooks custody",
        "breaches and mishaps, and the sleep of the engine",
    ),
    _scope("pressure", "2x2x2x1", "core preemption", "pressure tokens", "preemption that gains nothing, or ends a pass"),
    _scope(
        "progress", "2x1x1x1", "core grammar load load_failure send preemption handoff chunks sleep contract",
        "custody steps handoff chunks sleep", "everything that must come to an end", handoff_stage=1,
    ),
    _scope(
        "progress of loads", "2x2x1x1", "core load send", "admission custody", "loads that must not block one another",
        pool_blocks=2, max_want=2,
    ),
)  # fmt: skip
"""The named scopes."""

LIVELY = ("progress", "progress of loads")
"""Where progress is checked when no scope is named."""

DEFAULT = tuple(s.name for s in SCOPES if s.name not in LIVELY)
"""What is explored when no scope is named."""


def parse(text: str, base: Scope | None = None) -> Scope:
    """The scope of that name or of those sizes (on top of `base`); DefinitionError says what may be written."""
    for scope in SCOPES:
        if scope.name == text:
            return scope
    if re.fullmatch(r"\d+(x\d+)*", text) is None:
        near = difflib.get_close_matches(text, [s.name for s in SCOPES], n=2)
        names = " or ".join(near) or ", ".join(s.name for s in SCOPES)
        also = f", or a named scope ({names})" if names else ""
        raise DefinitionError(
            f"unknown scope {text}: write REQUESTSxBLOCKS or REQUESTSxBLOCKSxSTEPS, as 2x3{also}"
        )
    numbers = [int(n) for n in text.split("x")]
    if len(numbers) not in range(2, len(AXES) + 1):
        raise DefinitionError(
            f"scope {text} has {len(numbers)} size(s): write REQUESTSxBLOCKS or REQUESTSxBLOCKSxSTEPS, as 2x3"
        )
    for sort, number in zip(AXES, numbers, strict=False):
        if not 1 <= number <= LARGEST:
            raise DefinitionError(
                f"scope {text} has {number} of sort {sort}: write a size from 1 to {LARGEST}"
            )
    sizes = dict(zip(AXES, [*numbers, *([1] * (len(AXES) - len(numbers)))], strict=True))
    return replace(base or LIFECYCLE, name=text, sizes=sizes)
