"""The digest of everything that the engines' answers depend on: the specification without its prose, mutants, scopes, ranks.

A hash of structure: frozen values are hashed from their leaves up, sets in sorted order, so the digest is the same in every
process. Prose (documentation, labels, cited sources, catalogue names) is left out: correcting a sentence does not make
evidence stale. Rejected: hashing the source files (a comment would cost a new run), and `repr` (shared terms make it
exponential, and the order of sets changes from one process to the next).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import Any

from vllm_lifecycle.spec import scopes
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles import block
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.mutants import MUTANTS
from vllm_lifecycle.spec.properties.ranks import RANKINGS

PROSE = frozenset({"doc", "label", "by", "sources", "ids", "corpus"})
"""Fields that no engine reads."""
SHOWN = 16
"""Hexadecimal digits of the digest that are kept."""


@cache
def current() -> str:
    """The digest of the specification as it is."""
    return digest(SYSTEM)


def digest(machine: Machine) -> str:
    """The digest of a specification (with the mutants, scopes and ranks of the project)."""
    whole = (
        machine,
        block.FOLLOWS_ITS_LIFECYCLE,
        block.EDGES,
        RANKINGS,
        tuple(MUTANTS.values()),
        scopes.SCOPES,
        scopes.DEFAULT,
        scopes.LIVELY,
    )
    return _Hash().of(whole)[:SHOWN]


class _Hash:
    """Hashes values; a value that occurs many times is hashed once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any) -> str:
        known = self._done.get(id(value))
        if known is None:
            # The value is kept beside its hash, so that its id is not given to another one meanwhile.
            known = self._done[id(value)] = (
                value,
                sha256("\0".join(self._parts(value)).encode()).hexdigest(),
            )
        return known[1]

    def _parts(self, value: Any) -> list[str]:
        match value:
            case Enum():
                return ["enum", type(value).__name__, value.name]
            case None | bool() | int() | str():
                return [type(value).__name__, str(value)]
            case type():
                return ["type", value.__name__]
            case tuple() | list():
                return ["sequence", *map(self.of, value)]
            case frozenset() | set():
                return ["set", *sorted(map(self.of, value))]
            case Mapping():
                return ["mapping", *sorted(self.of(item) for item in value.items())]
        if is_dataclass(value):
            kept = (f.name for f in fields(value) if f.compare and f.name not in PROSE)
            return [type(value).__name__, *(self.of((name, getattr(value, name))) for name in kept)]
        raise TypeError(f"{type(value).__name__} has no digest: make it a frozen dataclass, or leave it out")
