"""Custody over time: who held which block after each call, as plain values that any checker can fill in.

A `Picture` is a sequence of moments, one for each call; a `Frame` is what was observed after it. Names are those that people
read (`r0`, `block 3`), already made by whoever observed them. Nothing here is judged or laid out: see `lanes` for the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["table", "step", "receive", "send", "handoff", "deferred"]
"""What holds a block: a block table, a model step, a transfer, or the scheduler's list of frees that it put off."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One incarnation of a request: its status in the scheduler's words, and further facts in a few words."""

    name: str
    status: str
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRow:
    """A model step in flight."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Holding:
    """Somebody holds some blocks."""

    kind: Kind
    who: str
    blocks: frozenset[str]

    @property
    def label(self) -> str:
        """The holder as it is written."""
        return f"{self.kind} {self.who}".strip()


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything shown of one moment. `free` lists the free pool as it is, so that a block may stand there twice."""

    requests: tuple[RequestRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    blocks: tuple[str, ...] = ()
    free: tuple[str, ...] | None = ()
    """None when the free pool was not observed."""
    cached: frozenset[str] = frozenset()
    holdings: tuple[Holding, ...] = ()

    def holders(self, block: str) -> tuple[Holding, ...]:
        """Who holds the block."""
        return tuple(h for h in self.holdings if block in h.blocks)


@dataclass(frozen=True, slots=True)
class Moment:
    """One call, what it changed, and the frame after it; None when nothing could be observed any more."""

    call: str
    changes: tuple[str, ...] = ()
    frame: Frame | None = None
    breach: str = ""
    """The rule of the contract that the call breaks."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A counterexample: the property falls at its last moment, or, with a loop, because the loop repeats for ever."""

    moments: tuple[Moment, ...]
    subjects: frozenset[str] = frozenset()
    """Requests and blocks for which the property falls."""
    loop: int | None = None
    """Index of the first moment that repeats for ever; the number of moments when the run just stops."""
    lasting: bool = False
    """The last moment stands for all that comes after the last call, in which what should happen never does."""
    falls: bool = True
    """Whether the property falls at all: a replay shows what holds too."""


def request_name(rid: str, epoch: int) -> str:
    """The name of an incarnation: an id that was given to a later request is told apart by a number."""
    return f"{rid} ({epoch + 1})" if epoch > 0 else rid


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order of first use."""
    return tuple(dict.fromkeys(names))
