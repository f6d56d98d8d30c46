"""The driver's own record of what is in flight: the measure against which a scheduler is judged.

A transfer belongs to one incarnation of a request (id + epoch) and lists the blocks that the connector was told of.
A step lists the blocks that it reads or writes.  Nothing here is read back from the scheduler's memory of them: a
scheduler that forgets a transfer does not make it go away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from .scope import Match


@dataclass
class Life:
    """One incarnation of a request as its client knows it."""

    rid: str
    epoch: int
    request: Any
    match: Match
    hold: bool
    prompt: int
    answer: int
    session: bool
    order: int
    priority: int = 0
    client_done: bool = False
    grammar: Literal["", "pending", "ready", "failed"] = ""
    asked_between_steps: bool = False
    undecided: bool = False
    """The connector's last word was that it does not know yet."""
    finished_calls: int = 0
    told_new: dict[int, int] = field(default_factory=dict)
    """Announcements as new, per turn (the length of the prompt tells turns apart)."""
    chunks: int = 0
    closed: bool = False
    most_computed: int = 0
    parameters: frozenset[str] = frozenset()
    """Transfers whose parameters were made for the client."""
    delivered: frozenset[str] | None = None
    """Transfers whose parameters the final output carried; None while there was no final output."""
    handoffs: int = 0
    pooling: bool = False


@dataclass
class Transfer:
    """A receive or a send that the connector was told of and that has not been reported yet."""

    kind: Literal["receive", "send", "handoff"]
    rid: str
    epoch: int
    blocks: tuple[int, ...]
    announced: int | None
    """Number of the dispatched step that tells the worker of it; None until one is dispatched."""


@dataclass
class Step:
    """A dispatched step that has not been answered."""

    number: int
    output: Any
    tokens: dict[str, int]
    blocks: dict[str, tuple[int, ...]]
    tags: dict[str, tuple[int, ...]]
    """Per request what tells its present run from earlier and later ones (see `Driver.tag`)."""
    samples: frozenset[str]
    drafts: dict[str, int]
    loads: dict[str, tuple[int, ...]]
    """Blocks that the step itself loads (synchronous connector loads), per request."""
    encodes: dict[str, tuple[str, ...]]
    """Encoder entries that the step computes and reads, per request."""
    drops: tuple[str, ...]
    """Encoder entries that the step tells the worker to forget."""


@dataclass
class Outbox:
    """What the next answer of the worker will carry for the connector."""

    received: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    bad_blocks: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.kinds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of report in it."""
        there = {
            "received": self.received,
            "sent": self.sent,
            "failed": self.failed,
            "bad blocks": self.bad_blocks,
        }
        return tuple(kind for kind, reports in there.items() if reports)


@dataclass
class HookCall:
    """One call of a connector hook by the scheduler."""

    hook: str
    rid: str
    detail: str = ""


@dataclass
class Truth:
    """Everything in flight, and the calls that put it there."""

    lives: dict[str, Life] = field(default_factory=dict)
    past: list[Life] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outbox: Outbox = field(default_factory=Outbox)
    hooks: list[HookCall] = field(default_factory=list)
    dispatched: int = 0
    adds: int = 0
    pause: str = ""
    undelivered: list[Transfer] = field(default_factory=list)
    """Transfers that are over and whose report is on its way to the scheduler."""
    delivered: set[tuple[str, int]] = field(default_factory=set)
    """Incarnations whose receive was reported to the scheduler."""
    noticed: list[str] = field(default_factory=list)
    """Rules that a connector of the user's broke inside a call, until the play takes note of them."""
    breakers: list[str] = field(default_factory=list)
    """Who broke the contract, breach by breach."""
    mishap: bool = False
    """A load failed, or a reset was forced: something went wrong that nobody is to blame for."""
    dead: bool = False
    emitted: int = 0
    """Tokens and completions that reached a client or a connector: never decreases."""
    loading: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Synchronous loads announced since the last dispatch."""

    def transfer(self, kind: str, rid: str) -> Transfer | None:
        """The outstanding transfer of that kind that a report for `rid` would belong to."""
        return next((t for t in self.transfers if t.kind == kind and t.rid == rid), None)

    def reportable(self, kind: str, rid: str) -> bool:
        """Whether the answer of the oldest dispatched step can tell the end of such a transfer."""
        t = self.transfer(kind, rid)
        return bool(t and self.steps and self.can_tell(self.steps[0], t))

    def can_tell(self, step: Step, transfer: Transfer) -> bool:
        """Whether the answer of a step can tell the end of a transfer.

        It was announced to the worker by then; or it is a send whose parameters the client has, for then the remote reader may
        have been quick, and told the worker itself.
        """
        if transfer.announced is not None and transfer.announced <= step.number:
            return True
        owners = (*self.lives.values(), *self.past)
        owner = next((x for x in owners if (x.rid, x.epoch) == (transfer.rid, transfer.epoch)), None)
        return transfer.kind == "send" and bool(owner and owner.delivered)

    @property
    def drafts_in_flight(self) -> dict[str, int]:
        """Draft tokens in flight per request."""
        out: dict[str, int] = {}
        for step in self.steps:
            for rid, n in step.drafts.items():
                out[rid] = out.get(rid, 0) + n
        return out
