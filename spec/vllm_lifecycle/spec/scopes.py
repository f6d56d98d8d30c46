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

AXES = ("Request", "Block", "Step", "Entry")
"""The sorts that the numbers of a written scope stand for, in order; a number left out is 1."""
LARGEST = 6
"""Most individuals per sort that a written scope may ask for: every subset of blocks is tried."""


@dataclass(frozen=True)
class Scope:
    """Bounds of an exploration; None for features or modules means all of them."""

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
            result = result.project(self.modules)
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


SCOPES: tuple[Scope, ...] = ()
"""The named scopes."""


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
    return replace(base, name=text, sizes=sizes) if base is not None else Scope(text, sizes)
