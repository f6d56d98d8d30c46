"""The observed state of a real scheduler as a state of the specification: one function per state variable.

What a scheduler records is read through the snapshot; ghosts come from the driver's truth.  Bookkeeping that the
specification has and vLLM does not keep (the pins of a transfer, the holds of a step) is bound to what stands for it in
vLLM: a finished request that stays tracked, a deferred free.  A step's blocks are at risk only where a writer exists
that is not ordered with the model's steps: with a KV connector and several steps in flight; otherwise stream order
protects them.  An engine that sleeps is one that would not be stepped although no step is out and nobody paused it; with
a parked streaming session sleeping is legal, as nothing can be done until its client speaks.

`UNBOUND` lists what cannot be observed and why; claims that read it are not judged, and `Judge.unjudged` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

from vllm_lifecycle.spec.lang.sparse import Cells, Sparse
from vllm_lifecycle.spec.lifecycles.vocabulary import Flight, Kind, Party, Row, Status, Transfer

from .snapshot import RequestView, Snapshot
from .subject import Subject
from .truth import Step
from .truth import Transfer as Moving

KINDS = {"receive": Kind.RECEIVE, "send": Kind.SEND, "handoff": Kind.HANDOFF}
PARAMETERS = {"send": Kind.SEND, "past_key_values": Kind.HANDOFF}
"""Keys of the final output's transfer parameters: our connector's own one, and that of a hand-off."""
NAMES = {
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": Status.WAITING_FOR_GRAMMAR,
    "WAITING_FOR_FSM": Status.WAITING_FOR_GRAMMAR,
}
"""vLLM's names for states that the specification calls otherwise."""
UNBOUND = {
    "blamed": "vLLM attributes no breach",
    "fruitless": "inside a pass",
    "fruitless_count": "inside a pass",
    "held": "counted from tables already",
    "used": "counted from tables already",
    "reserved": "vLLM keeps no record of promised blocks",
    "resumable": "known to the client only",
}
for _name in ("triggered", "handoffs", "ended_badly", "chunk_ready", "polled"):
    UNBOUND[_name] = "only schedulers with hand-offs or chunks have it (see `extension`)"


class Observed:
    """One observed state, and what several variables need of it."""

    def __init__(self, driver: Subject, snapshot: Snapshot) -> None:
        self.driver = driver
        self.scope = driver.scope
        self.truth = driver.truth
        self.s = snapshot
        self.views: dict[str, RequestView] = {r.rid: r for r in snapshot.requests if r.tracked}

    @cached_property
    def live(self) -> dict[str, RequestView]:
        """Tracked and unfinished requests."""
        return {rid: r for rid, r in self.views.items() if not r.finished}

    @cached_property
    def held(self) -> dict[str, RequestView]:
        """Finished requests that stay tracked: their blocks wait for a transfer."""
        return {rid: r for rid, r in self.views.items() if r.finished}

    @cached_property
    def pending(self) -> list[Moving]:
        """Transfers that the scheduler has not been told the end of."""
        return self.truth.transfers + self.truth.undelivered

    @cached_property
    def slots(self) -> list[tuple[int, Step]]:
        """Steps in flight with the individual that stands for each."""
        return [(step.number % self.scope.depth, step) for step in self.truth.steps]

    def status(self) -> Cells:
        out: Cells = {(rid,): NAMES.get(r.status) or Status[r.status] for rid, r in self.live.items()}
        out.update({(rid,): Status.WAITING_FOR_TRANSFER_FREE for rid in self.held})
        return out

    def members(self, *queues: str) -> Cells:
        return {(r.rid,): True for r in self.s.requests if any(q in queues for q in r.queues)}

    def incarnation(self) -> Cells:
        epochs = {rid: life.epoch for rid, life in self.truth.lives.items()}
        epochs.update({rid: r.epoch for rid, r in self.views.items()})
        return {(rid,): True for rid, epoch in epochs.items() if epoch % 2}

    def told_new(self, rid: str) -> int:
        """Announcements as new in the present turn: a session is announced anew, by design, for each turn."""
        life = self.truth.lives[rid]
        return life.told_new.get(life.request.num_prompt_tokens, 0)

    def row(self) -> Cells:
        out: Cells = {}
        passed: Counter[str] = Counter()
        for slot, step in self.slots:
            for rid, n in step.tokens.items():
                passed[rid] += n
                view = self.live.get(rid)
                if view is None:
                    continue
                request = self.driver.tracked(rid)
                stale = self.driver.observer.of(request, "stale output", None)
                if stale is None:
                    out[slot, rid] = Row.DELIVERABLE if view.status == "PREEMPTED" else Row.CURRENT
                elif passed[rid] <= stale:
                    dropped = self.driver.observer.of(request, "stale output is dropped", False)
                    out[slot, rid] = Row.DROPPED if dropped else Row.DELIVERABLE
                else:
                    out[slot, rid] = Row.CURRENT
        return out

    def epoch_over(self) -> Cells:
        return {
            (slot, rid): True
            for slot, step in self.slots
            for rid in step.tokens
            if step.tags[rid] != self.driver.tag(rid)
        }

    def table(self) -> Cells:
        return {(rid, b): True for rid, r in self.live.items() for b in r.table}

    def transfer(self) -> Cells:
        out: Cells = {}
        for rid, r in self.live.items():
            if r.status == "WAITING_FOR_REMOTE_KVS" and (rid, r.epoch) in self.truth.delivered:
                out[rid, Kind.RECEIVE] = Transfer.DONE
        for t in self.pending:
            needed = t.kind == "handoff" and t.announced is None
            out[t.rid, KINDS[t.kind]] = Transfer.NEEDED if needed else Transfer.ACTIVE
        return out

    def pinned(self) -> Cells:
        out: Cells = {}
        for t in self.pending:
            view = self.views.get(t.rid)
            if view is None or view.epoch != t.epoch:
                continue
            held = {*view.table, *self.s.apart}
            blocks = view.table if view.finished else held & set(t.blocks)
            out.update({(t.rid, KINDS[t.kind], b): True for b in blocks})
        return out

    def remote(self) -> Cells:
        return {(t.rid, KINDS[t.kind], b): True for t in self.truth.transfers for b in t.blocks}

    def parameters(self, delivered: bool) -> Cells:
        """Transfers whose parameters were made for the client, or were delivered with the final output."""
        lives = [x for x in self.truth.lives.values() if x.delivered is not None]
        return {
            (x.rid, PARAMETERS[key]): True
            for x in lives
            for key in (x.delivered if delivered else x.parameters) or ()
            if key in PARAMETERS
        }

    def before(self) -> Cells:
        """Who is ahead of whom in the same waiting queue."""
        return {
            (rid, behind): True
            for queue in (self.s.waiting, self.s.parked)
            for place, rid in enumerate(queue)
            for behind in queue[place + 1 :]
            if behind != rid
        }

    def step_holds(self) -> Cells:
        newest = self.slots[-1][0] if self.slots else 0
        return {(newest, b): True for b in self.s.deferred}

    def running_step(self) -> Cells:
        if not (self.scope.connector and self.scope.depth > 1):
            return {}
        return {
            (slot, b): True for slot, step in self.slots for blocks in step.blocks.values() for b in blocks
        }

    def ref(self) -> Cells:
        others = Counter(b for r in self.held.values() for b in r.table) + Counter(self.s.deferred)
        others.update(self.s.apart)
        null = self.driver.observer.null
        return {(b,): n - others[b] for b, n in enumerate(self.s.references) if n != others[b] and b != null}

    def free(self) -> Cells:
        null = self.driver.observer.null
        return {(b,): False for b, n in enumerate(self.s.references) if n != 0 and b != null}

    def listed(self) -> Cells:
        counts = Counter(self.s.free)
        null = self.driver.observer.null
        return {
            (b,): min(2, counts[b]) for b in range(len(self.s.references)) if counts[b] != 1 and b != null
        }

    def content(self) -> Cells:
        incoming = {b for t in self.truth.transfers if t.kind == "receive" for b in t.blocks}
        return {(b,): True for b in self.s.cached if b not in incoming}

    def awaited(self) -> Cells:
        """Placeholders; a synchronous scheduler has none, and awaits the drafts that it put in a step.

        A preempted request whose release counts no stale output keeps a placeholder for each token in flight, which will be
        delivered to it (`row`): only what goes beyond those is awaited.
        """
        drafts = {} if self.scope.asynchronous else self.truth.drafts_in_flight
        out: Cells = {}
        for rid, r in self.live.items():
            number = r.placeholders + (drafts.get(rid, 0) if r.status == "RUNNING" else 0)
            if r.status == "PREEMPTED" and number > 0:
                number = max(0, number - self.deliverable(rid))
            if number:
                out[rid,] = number
        return out

    def deliverable(self, rid: str) -> int:
        """Tokens in flight that will be given to a request although it does not run any more."""
        rows = self.row()
        return sum(
            step.drafts.get(rid, 0) + (rid in step.samples)
            for slot, step in self.slots
            if rows.get((slot, rid)) == Row.DELIVERABLE
        )

    def row_samples(self) -> Cells:
        current = {key for key, value in self.row().items() if value == Row.CURRENT}
        out: Cells = {}
        for slot, step in self.slots:
            for rid in step.tokens:
                number = step.drafts.get(rid, 0) + (rid in step.samples if self.scope.asynchronous else 0)
                if number and (slot, rid) in current:
                    out[slot, rid] = number
        return out

    def asleep(self) -> Cells:
        sleeps = not (self.s.awake or self.truth.steps or self.truth.pause)
        return {(): True} if sleeps else {}

    def entries(self) -> tuple[str, ...]:
        """The encoder entries that this state speaks of."""
        named = {e for step in self.truth.steps for group in step.encodes.values() for e in group}
        named |= {e for step in self.truth.steps for e in step.drops}
        return tuple(sorted(named | set(self.s.encoder.entries if self.s.encoder else ())))

    def enc_running(self) -> Cells:
        if self.s.encoder is None or self.scope.encoder == "encoder-decoder":
            return {}
        return {
            (slot, e): True
            for slot, step in self.slots
            for rid, group in step.encodes.items()
            if rid in self.live and step.tags[rid] == self.driver.tag(rid)
            for e in group
        }

    def enc_drop(self) -> Cells:
        return {(e,): True for e in (self.truth.steps[-1].drops if self.truth.steps else ())}

    def enc_used(self) -> Cells:
        if self.s.encoder is None:
            return {}
        from .encoder import IMAGE_TOKENS

        used = (self.s.encoder.capacity - self.s.encoder.free) // IMAGE_TOKENS
        return {(): used} if used else {}


def _flag(names: Any) -> Cells:
    return {(name,): True for name in names}


def _numbers(pairs: Any) -> Cells:
    return {key: value for key, value in pairs if value}


BOUND: dict[str, Callable[[Observed], Cells]] = {
    "phase": lambda o: {},
    "asleep": Observed.asleep,
    "alive": lambda o: {(): False} if o.truth.dead else {},
    "breached": lambda o: {(Party[p.upper()],): True for p in o.truth.breakers},
    "mishap": lambda o: {(): True} if o.truth.mishap else {},
    "status": Observed.status,
    "announced": lambda o: _flag(rid for rid in o.truth.lives if o.told_new(rid)),
    "kv_holding": lambda o: _flag(rid for rid, r in o.live.items() if r.computed and r.status != "RUNNING"),
    "before": Observed.before,
    "in_waiting": lambda o: o.members("waiting", "waiting (2)"),
    "in_running": lambda o: o.members("running"),
    "incarnation": Observed.incarnation,
    "flight": lambda o: {(slot,): Flight.DISPATCHED for slot, _ in o.slots},
    "row": Observed.row,
    "epoch_over": Observed.epoch_over,
    "free": Observed.free,
    "table": Observed.table,
    "step_holds": Observed.step_holds,
    "transfer": Observed.transfer,
    "pinned": Observed.pinned,
    "remote": Observed.remote,
    "running_step": Observed.running_step,
    "ref": Observed.ref,
    "listed": Observed.listed,
    "cached": lambda o: _flag(o.s.cached),
    "promised": lambda o: {},
    "parked_running": lambda o: {},
    "content": Observed.content,
    "params_made": lambda o: o.parameters(delivered=False),
    "output_params": lambda o: o.parameters(delivered=True),
    "notice": lambda o: _flag(o.s.notices),
    "finish_hooks": lambda o: _numbers(((r,), min(2, x.finished_calls)) for r, x in o.truth.lives.items()),
    "told_new": lambda o: _numbers(((rid,), min(2, o.told_new(rid))) for rid in o.truth.lives),
    "known": lambda o: _numbers(((rid,), r.known) for rid, r in o.live.items()),
    "computed": lambda o: _numbers(((rid,), r.computed) for rid, r in o.live.items()),
    "placeholders": Observed.awaited,
    "drafts": lambda o: _numbers(((rid,), min(1, r.drafts)) for rid, r in o.live.items()),
    "row_samples": Observed.row_samples,
    "running_count": lambda o: {(): len(o.s.running)} if o.s.running else {},
    "loading_count": lambda o: _numbers(
        [((), sum(r.status == "WAITING_FOR_REMOTE_KVS" for r in o.live.values()))]
    ),
    "preempted_in_pass": lambda o: {},
    "want": lambda o: _numbers(((rid,), o.scope.need(r.known)) for rid, r in o.live.items()),
    "enc_cached": lambda o: _flag(o.s.encoder.entries if o.s.encoder else ()),
    "enc_ref": lambda o: (
        {(rid, e): True for e, rids in o.s.encoder.users for rid in rids} if o.s.encoder else {}
    ),
    "enc_holds": Observed.enc_running,
    "enc_running": Observed.enc_running,
    "enc_drop": Observed.enc_drop,
    "enc_used": Observed.enc_used,
}


def bind(driver: Subject, snapshot: Snapshot, names: frozenset[str]) -> Sparse:
    """The state of the specification that stands for an observation; only the named variables."""
    observed = Observed(driver, snapshot)
    table = {**BOUND, **driver.further}
    return {name: table[name](observed) for name in names}


def individuals(driver: Subject, snapshot: Snapshot) -> dict[str, tuple[Hashable, ...]]:
    """The individuals that an observation speaks of."""
    null = driver.observer.null
    return {
        "Request": tuple(driver.truth.lives),
        "Block": tuple(b for b in range(len(snapshot.references)) if b != null),
        "Step": tuple(range(driver.scope.depth)),
        "Entry": Observed(driver, snapshot).entries() if driver.scope.encoder else (),
    }


def constants(driver: Subject) -> dict[str, int]:
    """The rigid constants of the specification for a scope."""
    from .encoder import IMAGE_TOKENS

    scope = driver.scope
    return {
        "max_tokens": scope.model_length,
        "max_num_seqs": scope.slots,
        "pool_blocks": scope.blocks,
        "encoder_budget": scope.encoder_tokens // IMAGE_TOKENS,
        "max_want": scope.model_length,
        "max_committed": scope.model_length * scope.requests,
        "max_requests": scope.requests,
        "handoff_stage": int(bool(scope.handoff)),
    }
