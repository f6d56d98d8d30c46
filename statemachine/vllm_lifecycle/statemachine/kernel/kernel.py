"""The kernel: what may be done to requests, blocks, transfers and steps. Each operation is one action of the specification.

An operation whose guard does not hold raises `Refused` and has changed nothing. Operations that need blocks answer None when
the pool has not enough of them: that is not a fault, and nothing has changed either. Which blocks are free follows from who
holds them, and is never set. Decisions (order, budgets, victims) belong to the policy and the pass; signals from outside are
matched here with what is outstanding, and refused, with their sender, when they match nothing.

Rejected: undoing an operation that went wrong half-way (guards come first instead); a kernel that calls the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from vllm_lifecycle.spec.lifecycles.vocabulary import FINISHED, GONE, Kind, Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.custody import Custody
from vllm_lifecycle.statemachine.kernel.queue import Queue
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step
from vllm_lifecycle.statemachine.kernel.store import BlockStore, Hit
from vllm_lifecycle.statemachine.kernel.transfers import Transfer

Hook = Callable[[Seq], tuple[bool, Any]]
"""Asked when a request ends, with its table still there: will its blocks be sent first, and what the client is told of that."""

_WAITING = (Status.WAITING, Status.PREEMPTED)
COMPLETED = frozenset({Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED, Status.FINISHED_REPETITION})
"""Ends after which the client has what it asked for."""


def nothing_is_sent(seq: Seq) -> tuple[bool, Any]:
    """The hook of a scheduler without connector."""
    return False, None


class Kernel(Custody):
    """The state of one scheduler, and the operations on it.

    running     in order of admission
    waiting     requests without blocks; holding: waiting requests with a table or a load, when they queue by themselves
    loads       requests that load, or have loaded and wait: each has a slot, and what it will need to run is promised to it
    idle        sessions that wait for their client (see sessions.py), in the order in which their turns ended
    notices     ids that finished since the last step was dispatched
    columns     its lockstep decoders; None where everybody is served by himself
    """

    def __init__(
        self,
        store: BlockStore,
        waiting: Queue,
        *,
        slots: int,
        finishing: Hook = nothing_is_sent,
        holding: Queue | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(store, clock)
        self.slots = slots
        self.running: list[Seq] = []
        self.waiting = waiting
        self.holding: Queue = waiting if holding is None else holding
        self.notices: set[str] = set()
        self.unfinished = 0
        self.loads: dict[Seq, None] = {}
        self.idle: dict[Seq, None] = {}
        self._finishing = finishing

    # requests come

    def add(self, seq: Seq) -> None:
        """add_request, add_structured_request: a free id is taken, the request waits behind the others."""
        if seq.id in self.seqs:
            raise self.refuse("add_request", f"the id {seq.id!r} is in use", Party.CLIENT)
        if seq.status not in (Status.WAITING, Status.WAITING_FOR_GRAMMAR, Status.WAITING_FOR_CHUNK):
            raise self.refuse("add_request", f"a new request cannot be {seq.status.name}", Party.CLIENT)
        self.seqs[seq.id] = seq
        self.unfinished += 1
        self.waiting.append(seq)

    def grammar_ready(self, seq: Seq) -> None:
        """WAITING_FOR_GRAMMAR -> WAITING, in its place."""
        self._require(seq.status is Status.WAITING_FOR_GRAMMAR, "grammar_ready", seq)
        seq.status = Status.WAITING

    # within a pass

    def admit(
        self,
        seq: Seq,
        tokens: int,
        hit: Hit | None,
        *,
        external: int = 0,
        lookahead: int = 0,
        encoder: int = 0,
        keep: int = 0,
    ) -> tuple[list[int], ...] | None:
        """admit_request, admit_holding_request: WAITING or PREEMPTED -> RUNNING, with blocks for `tokens` more; None: no room."""
        if seq.status not in _WAITING:
            raise self.not_enabled("admit_request", seq)
        if not (self.slot_is_free() or seq in self.loads):
            raise self.not_enabled("admit_request", seq, "no slot is free")
        if self.awaits_delivery(seq):
            raise self.not_enabled("admit_request", seq, "tokens of its last run are still to come")
        if seq.held_kv and hit is not None:
            raise self.not_enabled("admit_request", seq, "it has a table already")
        known = seq.cached_blocks if hit is None else len(hit.blocks[0])
        fresh = self.store.grow(
            seq, tokens, hit=hit, external=external, lookahead=lookahead, cache=True, encoder_tokens=encoder, keep=keep
        )  # fmt: skip
        if fresh is None:
            return None
        if seq.cached_blocks > known:
            self._filling.setdefault(seq, known)
        (self.holding if seq.held_kv else self.waiting).remove(seq)
        self.loads.pop(seq, None)
        seq.held_kv = False
        if hit is not None:
            seq.computed = hit.tokens + external
        seq.status = Status.RUNNING
        seq.announced = True
        self.running.append(seq)
        return fresh

    def start_receive(
        self, seq: Seq, hit: Hit | None, external: int, *, keep: int = 0, encoder: int = 0
    ) -> tuple[list[int], ...] | None:
        """WAITING or PREEMPTED -> WAITING_FOR_REMOTE_KVS: a remote writer begins to fill blocks for `external` tokens."""
        self._require(seq.status in _WAITING, "start_receive", seq)
        self._require(external > 0, "start_receive", seq, "nothing is loaded")
        self._require(seq.receive is None and not seq.held_kv, "start_receive", seq, "it has a table already")
        self._require(
            not self.awaits_delivery(seq), "start_receive", seq, "tokens of its last run are still to come"
        )
        fresh = self.store.grow(
            seq, 0, hit=hit, external=external, cache=False, keep=keep, encoder_tokens=encoder
        )
        if fresh is None:
            return None
        self.loads[seq] = None
        seq.receive = Transfer(Kind.RECEIVE, since=self._clock(), first=self.steps.number + 1)
        seq.status = Status.WAITING_FOR_REMOTE_KVS
        if self.holding is not self.waiting:
            self.waiting.remove(seq)
            self.holding.prepend(seq)
        return fresh

    def promote(self, seq: Seq, computed: int) -> None:
        """WAITING_FOR_REMOTE_KVS -> WAITING, or PREEMPTED if it ran before: `computed` tokens need not be computed.

        promote_loaded_request when something came whole (the last token is computed in any case, so `computed` may be 0);
        retry_failed_load when nothing did: then its table is given back.
        """
        transfer = seq.receive
        if (
            seq.status is not Status.WAITING_FOR_REMOTE_KVS
            or transfer is None
            or transfer.state is State.ACTIVE
        ):
            raise Refused("promote_loaded_request", f"{seq!r}: its load is not done")
        seq.receive = None
        seq.status = Status.PREEMPTED if seq.announced else Status.WAITING
        seq.computed = computed
        if transfer.valid is None or computed:
            self.store.cache(seq, computed)
            seq.held_kv = True
            return
        del self.loads[seq]
        self._end_table(seq)
        if self.holding is not self.waiting:
            self.holding.remove(seq)
            self.waiting.prepend(seq)

    def resume_running(self, seq: Seq, tokens: int, *, lookahead: int = 0) -> tuple[list[int], ...] | None:
        """continue_request: a running request takes part with `tokens` more; None: the pool has not the blocks."""
        self._require(seq.status is Status.RUNNING, "continue_request", seq)
        known = seq.cached_blocks
        fresh = self.store.grow(seq, tokens, lookahead=lookahead)
        if seq.cached_blocks > known:
            self._filling.setdefault(seq, known)
        if seq.in_flight and fresh is not None and any(fresh):
            self._grown[seq] = fresh
        return fresh

    def preempt(self, seq: Seq, *, deliver: bool = True) -> None:
        """preempt_request, preempt_for_reset: RUNNING -> PREEMPTED; it gives its table back and computes again later.

        Blocks that a dispatched step still touches stay held by that step. Tokens in flight are delivered, or dropped.
        """
        self._require(seq.status is Status.RUNNING, "preempt_request", seq)
        self._require(
            seq not in self._filling or not self._is_relied_on(seq),
            "preempt_request",
            seq,
            "somebody shares blocks that this pass was to compute for it",
        )
        if seq.lockstep is not None:
            seq.lockstep.leave(seq)
        self.running.remove(seq)
        self._end_table(seq)
        seq.last_step = 0  # what the next run gets is touched by no step of this one
        seq.status = Status.PREEMPTED
        seq.run += 1
        if not deliver:
            seq.deliver_from = seq.run
        seq.computed = 0
        seq.placeholders = 0
        seq.drafts = ()
        seq.preemptions += 1
        self.waiting.prepend(seq)

    def dispatch(self, rows: list[Row], lockstep: list[Seq]) -> Step:
        """BUILDING -> DISPATCHED: the step holds the blocks of its rows, and the workers have heard who finished."""
        step = self.steps.dispatch(rows, lockstep)
        number = step.number
        for seq, _, tokens, _, _ in rows:
            seq.computed += tokens
            seq.in_flight += 1
            seq.last_step = number
        self.notices = set()
        if self._filling or self._grown:
            self._filling.clear()
            self._grown.clear()
        if self.columns is not None:
            self.columns.dispatched(step)
        return step

    def slot_is_free(self) -> bool:
        """Another request may run or load."""
        running = len(self.running)
        return running + len(self.loads) < self.slots

    def promised(self, lookahead: int, but: Seq | None = None) -> int:
        """Blocks that requests which load, or have loaded, still need to run: promised to them, and not in use yet."""
        needs = self.store.needs
        return sum(needs(seq, len(seq.tokens) + 1 + lookahead, None) for seq in self.loads if seq is not but)

    # answers

    def close_row(self, row: Row) -> str:
        """What a row of an answered step is worth: "current", "deliverable" (of an earlier run) or "dropped"."""
        seq = row.seq
        seq.in_flight -= 1
        if seq.status is Status.RUNNING and row.run == seq.run:
            return "current"
        if seq.status in GONE or row.run < seq.deliver_from:
            return "dropped"
        return "current" if row.run == seq.run else "deliverable"

    def recompute(self, seq: Seq, upto: int) -> None:
        """report_invalid_blocks: what was loaded for a running request is whole up to token `upto` only; it goes on from there.

        The blocks behind leave the prefix cache. Tokens in flight are dropped, for they were computed from what is not there.
        """
        self._require(seq.status is Status.RUNNING, "report_invalid_blocks", seq)
        self._require(
            0 <= upto <= seq.computed_now,
            "report_invalid_blocks",
            seq,
            f"{upto} is not within what is computed",
        )
        if seq.lockstep is not None:
            seq.lockstep.leave(seq)
        first = upto // self.store.block_size
        self.store.evict({block for group in self.store.table(seq) for block in group[first:] if block})
        seq.cached_blocks = min(seq.cached_blocks, first)
        seq.run += 1
        seq.deliver_from = seq.run
        seq.computed = upto
        seq.placeholders = 0
        seq.drafts = ()

    def awaits_delivery(self, seq: Seq) -> bool:
        """Rows of an earlier run are in flight whose tokens count: it must not run again before they are there."""
        return seq.in_flight > 0 and seq.run > seq.deliver_from and seq.status is Status.PREEMPTED

    # ends

    def finish(self, seq: Seq, reason: Status) -> Any:
        """abort_request, stop_request, and ends in error: any unfinished state -> `reason`; what the client is told of a send.

        The table is given back, except for blocks that a step in flight or a transfer still touches: those keep them. With a
        transfer left the request waits for it (WAITING_FOR_TRANSFER_FREE) and keeps its id; else it is FREED.
        """
        if seq.status in GONE:
            raise self.not_enabled("finish", seq)
        if reason not in FINISHED:
            raise self.not_enabled("finish", seq, f"{reason.name} is no end")
        if seq.lockstep is not None:
            seq.lockstep.leave(seq)
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
        else:
            self.queue_of(seq).remove(seq)
        seq.status = reason
        seq.reason = reason
        self.unfinished -= 1
        self._part(seq, reason)
        hold, told = self._finishing(seq)
        self.notices.add(seq.id)
        if seq.receive is not None and seq.receive.state is not State.ACTIVE:
            seq.receive = None
        if hold:
            # of a send after a whole answer the client hears at once, and a remote reader can be done before the next step
            first = 0 if reason in COMPLETED else self.steps.number + 1
            seq.send = Transfer(Kind.SEND, since=self._clock(), first=first)
        if hold or seq.receive is not None:
            self._pass_on(seq)
        else:
            self._end_table(seq)
        seq.held_kv = False
        self.loads.pop(seq, None)
        self.idle.pop(seq, None)
        self._free_id(seq)
        return told

    # the prefix cache

    def preempt_all(self) -> list[Seq]:
        """begin_forced_reset, preempt_for_reset: everybody who runs gives way, last first; tokens in flight are dropped."""
        victims = self.running[::-1]
        for seq in victims:
            self.preempt(seq, deliver=False)
        return victims

    # shared

    def _part(self, seq: Seq, reason: Status) -> None:
        """What an engine with a later stage does with a request that ends, while its table is there."""

    def queue_of(self, seq: Seq) -> Queue:
        """The queue in which a waiting request is."""
        return self.holding if seq in self.holding else self.waiting

    def loading(self) -> Iterable[Seq]:
        """Requests that wait for remote KV, in the order of their queue."""
        return (seq for seq in self.holding if seq.status is Status.WAITING_FOR_REMOTE_KVS)
