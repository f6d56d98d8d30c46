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
"""The world that a scope written as sizes is made of, unless it says otherwise: a projection, so what holds carries over."""


def _exact(name: str, size: str, features: str, doc: str, **constants: int) -> Scope:
    """A scope of the whole state with these features: what is found in it carries over. One normal end stands for all."""
    chosen = tuple(features.split())
    world = {
        "kv_connector": int(bool({"load", "send"} & {*chosen})),
        "handoff_stage": int("handoff" in chosen),
        **constants,
    }
    return Scope(
        name, dict(zip(AXES, map(int, size.split("x")), strict=True)), world, _STOPS, chosen, doc=doc
    )


_EVERY_FEATURE = (
    "core chunks contract empty_output encoder grammar handoff load load_failure loss prefix preemption refusal reset send "
    "sessions sleep sync_load window"
)
_PROGRESS = (
    _exact("progress of loads", "2x1x1x1", "core load load_failure send grammar", "loads, none of them lost"),
    _exact(
        "progress of hand-offs", "2x1x1x1", "core handoff preemption grammar", "hand-offs, none of them lost"
    ),
    _exact("progress of chunks", "2x1x1x1", "core chunks", "chunks that come or are given up"),
)
SCOPES: tuple[Scope, ...] = (
    LIFECYCLE,
    _exact("queues", "3x3x1x1", "core", "three requests admitted, computed and stopped, in their order"),
    _exact(
        "pressure", "2x3x1x1", "core preemption", "two requests of two blocks in a pool of three", max_want=2, pool_blocks=3
    ),
    _exact("sharing", "2x3x1x1", "core prefix window sync_load preemption", "blocks shared by prefix hits"),
    _exact("loads", "2x2x1x1", "core load load_failure send preemption", "transfers both ways, and failures"),
    _exact("refusals", "2x2x1x1", "core refusal load", "requests larger than the pool", max_want=3, pool_blocks=2),
    _exact("handoffs", "2x2x2x1", "core handoff send", "hand-off to a later stage, while running and at the end"),
    _exact("chunks", "2x2x1x1", "core chunks handoff", "requests that wait for chunks of an earlier stage"),
    _exact("sessions", "2x1x2x1", "core sessions grammar empty_output", "streaming sessions, structured output"),
    _exact("steps", "1x2x3x1", "core preemption empty_output reset", "three steps in flight, drafts", max_tokens=3),
    _exact("encoder", "2x1x1x2", "core encoder preemption", "two entries, room for one", encoder_budget=1),
    _exact("everything", "1x1x1x1", _EVERY_FEATURE, "every feature at once, at the smallest size"),
    *_PROGRESS,
)  # fmt: skip
"""The named scopes."""

LIVELY = tuple(s.name for s in _PROGRESS)
"""Where progress is checked when no scope is named: without lost transfers, which refute it."""

DEFAULT = tuple(s.name for s in SCOPES if s.name not in LIVELY)
"""What is explored when no scope is named: together they show every property and witness."""


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
