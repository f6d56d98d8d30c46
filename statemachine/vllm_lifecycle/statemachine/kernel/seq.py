"""The kernel's record of one incarnation of a request: the state itself, of which a serving engine's request object is a view.

`tokens`, `outputs` and `hashes` are lists that the engine's request object grows; the record shares them, so that the number of
known tokens is written down once. A later request with the same id is another record with a higher `epoch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from vllm_lifecycle.spec.lifecycles.vocabulary import Status

if TYPE_CHECKING:
    from vllm_lifecycle.statemachine.kernel.transfers import Transfer

_epochs = count(1)


class Lockstep(Protocol):
    """What a record needs to know of the lockstep decoders (columns.py) when it is one of them."""

    @property
    def tick(self) -> int:
        """What is to be added to `Seq.computed` of each of them."""
        ...

    @property
    def awaited(self) -> int:
        """`Seq.placeholders` of each of them."""
        ...

    def flush(self) -> None:
        """`Seq.tokens` and `Seq.outputs` of each of them become complete."""
        ...

    def leave(self, seq: Seq) -> None:
        """The request is served by itself again, and its record is as usual."""
        ...


class Seq:
    """One incarnation of a request.

    id          the client's request id
    epoch       distinguishes incarnations of one id
    payload     the engine's request object; the kernel never looks into it
    status      the state, a spec `Status`
    priority, arrival   what a policy may order by (smaller first)
    prompt      number of prompt tokens; limit: most output tokens
    tokens      all known token ids; outputs: the sampled ones; hashes: keys of its full blocks, in order
    computed    tokens whose KV is computed, or being computed by a dispatched step
    placeholders    output tokens awaited from steps in flight (asynchronous scheduling)
    drafts      draft tokens proposed for the next step
    table       block ids, in order of position (own pool); cached_blocks: how many of them are in the prefix cache by its doing
    lora        adapter number, 0 for none
    skip_cache  never reads the prefix cache
    cached_tokens   tokens found computed at first admission, -1 before; external: of those, loaded by the connector
    preemptions how often it was preempted
    in_flight   rows in unanswered steps; last_step: number of the newest of them (0: never scheduled)
    run         counts runs: a preemption ends one. A row of an earlier run is stale: its tokens are delivered if that run is at
                least `deliver_from`, else dropped
    reason      how it ended, while it waits for a transfer
    chunk       its newest row left known tokens to compute
    announced   a worker was told of it, but (anew) not of its present turn; held_kv: waits with a table (after a load or a turn)
    receive, send, handoff   its transfers that are not over; triggered: its hand-off was asked for while it ran
    lockstep    the lockstep decoders when it is one of them: `computed`, `placeholders`, `in_flight` and `last_step` are kept
                for all of them together then, and `computed_now`, `awaited_now` are what to read; `tokens` and `outputs` are
                complete after `Lockstep.flush`
    """

    __slots__ = (
        "anew", "announced", "arrival", "cached_blocks", "cached_tokens", "chunk", "computed", "deliver_from", "drafts", "epoch",
        "external", "handoff", "hashes", "held_kv", "id", "in_flight", "last_step", "limit", "lockstep", "lora", "outputs",
        "payload", "placeholders", "preemptions", "priority", "prompt", "reason", "receive", "run", "send", "skip_cache",
        "status", "table", "tokens", "triggered",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        payload: Any,
        tokens: list[int],
        outputs: list[int],
        hashes: list[Any],
        *,
        limit: int,
        priority: int = 0,
        arrival: float = 0.0,
        lora: int = 0,
        skip_cache: bool = False,
        status: Status = Status.WAITING,
    ) -> None:
        self.id = id
        self.epoch = next(_epochs)
        self.payload = payload
        self.status = status
        self.priority = priority
        self.arrival = arrival
        self.prompt = len(tokens) - len(outputs)
        self.limit = limit
        self.tokens = tokens
        self.outputs = outputs
        self.hashes = hashes
        self.computed = 0
        self.placeholders = 0
        self.drafts: Sequence[int] = ()
        self.table: list[int] = []
        self.cached_blocks = 0
        self.lora = lora
        self.skip_cache = skip_cache
        self.cached_tokens = -1
        self.external = 0
        self.preemptions = 0
        self.in_flight = 0
        self.last_step = 0
        self.run = 0
        self.deliver_from = 0
        self.reason: Status | None = None
        self.chunk = False
        self.announced = False
        self.anew = False
        self.held_kv = False
        self.receive: Transfer | None = None
        self.send: Transfer | None = None
        self.handoff: Transfer | None = None
        self.triggered = False
        self.lockstep: Lockstep | None = None

    @property
    def computed_now(self) -> int:
        """`computed`, whether it is a lockstep decoder or not."""
        return self.computed if self.lockstep is None else self.computed + self.lockstep.tick

    @property
    def awaited_now(self) -> int:
        """`placeholders`, whether it is a lockstep decoder or not."""
        return self.placeholders if self.lockstep is None else self.lockstep.awaited

    def __repr__(self) -> str:
        return f"{self.id}#{self.epoch}[{self.status.name}, {self.computed_now}/{len(self.tokens)}]"
