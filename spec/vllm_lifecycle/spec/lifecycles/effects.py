"""Effects that several actions share, one per concern; each assigns the variables of its own module only.

An action calls the effects it needs, then its module's projection keeps what it knows. `settle` comes last: it returns to
the free pool every block that has no holder in the new state, which is the custody rule itself.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, either, every, exists, forall, ite, one_if
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    OUTSTANDING,
    OVER,
    UNFINISHED,
    Block,
    Flight,
    Kind,
    Party,
    Request,
    Row,
    Status,
    Step,
    Transfer,
    handoff_stage,
)

# readings of the state


def is_unfinished(s: State, r: Expr) -> Expr:
    """The request is tracked and not finished."""
    return every(s.status[r].is_in(*UNFINISHED))


def is_finished(s: State, r: Expr) -> Expr:
    """The request is finished and its id not free yet (for whatever reason)."""
    return every(s.status[r].is_in(*OVER))


def is_waiting(s: State, r: Expr) -> Expr:
    """The request may be admitted: WAITING or PREEMPTED."""
    return every(s.status[r].is_in(Status.WAITING, Status.PREEMPTED))


def has_slot(s: State, r: Expr) -> Expr:
    """The request is in the running list: RUNNING, or parked there until a chunk arrives."""
    return either(
        s.status[r] == Status.RUNNING, (s.status[r] == Status.WAITING_FOR_CHUNK) & s.parked_running[r]
    )


def is_loading(s: State, r: Expr) -> Expr:
    """The request waits for remote KV."""
    return every(s.status[r] == Status.WAITING_FOR_REMOTE_KVS)


def outstanding(s: State, r: Expr) -> Expr:
    """Some transfer of the request is needed, active or lost."""
    return either(*(s.transfer[r, kind].is_in(*OUTSTANDING) for kind in Kind))


def pins(s: State, r: Expr, b: Expr) -> Expr:
    """Some transfer of the request holds the block."""
    return either(*(s.pinned[r, kind, b] for kind in Kind))


def is_held(s: State, b: Expr) -> Expr:
    """The block has a holder: a table, a transfer or a dispatched step."""
    return exists(Request, lambda r: s.table[r, b] | pins(s, r, b)) | exists(
        Step, lambda k: s.step_holds[k, b]
    )


def ends_normally(reason: object) -> Expr:
    """The reason is one after which the result is worth handing on (not aborted, ignored or failed)."""
    normal = (Status.FINISHED_STOPPED, Status.FINISHED_LENGTH_CAPPED, Status.FINISHED_REPETITION)
    if isinstance(reason, Status):
        return every(reason in normal)
    assert isinstance(reason, Expr)
    return reason.is_in(*normal)


def at_most_two(number: Expr) -> Expr:
    """A count that need not tell two from more."""
    return ite(number >= 2, 2, number)


# custody


def settle(s: State) -> None:
    """A block is free exactly when it has no holder; the free list and its entries follow."""
    s.free[:] = lambda b: ~is_held(s, b)
    s.listed[:] = lambda b: one_if(~is_held(s, b))


def drop_table(s: State, r: Expr) -> None:
    """The request gives its block table back: each of its references is dropped once."""
    s.ref[:] = lambda b: s.ref[b] - one_if(s.table[r, b])
    s.table[r, :] = False


def fill_table(s: State, r: Expr, fresh: SetOf[Block], hits: SetOf[Block] | None = None) -> None:
    """The request takes fresh blocks, and shares the hit ones; a fresh block loses the content it was cached for."""

    def taken(b: Expr) -> Expr:
        return fresh[b] | hits[b] if hits is not None else fresh[b]

    s.ref[:] = lambda b: s.ref[b] + one_if(taken(b) & ~s.table[r, b])
    s.table[r, :] = lambda b: s.table[r, b] | taken(b)
    s.cached[:] = lambda b: s.cached[b] & ~fresh[b]
    s.content[:] = lambda b: s.content[b] & ~fresh[b]
    s.free[:] = lambda b: s.free[b] & ~taken(b)
    s.listed[:] = lambda b: ite(taken(b), 0, s.listed[b])


def require_blocks(s: State, fresh: SetOf[Block], hits: SetOf[Block] | None = None) -> None:
    """Fresh blocks come from the free pool; hit blocks are found in the prefix cache, free or held."""
    s.require(forall(Block, lambda b: fresh[b] >> s.free[b]), "fresh blocks come from the free pool")
    if hits is not None:
        s.require(
            forall(Block, lambda b: hits[b] >> (s.cached[b] & ~fresh[b])),
            "hit blocks are in the prefix cache",
        )


# queues


def set_status(s: State, r: Expr, status: object) -> None:
    """The one place that changes a request's state; the slot counters follow."""
    s.status[r] = status
    s.running_count = s.running_count + one_if(has_slot(s, r)) - one_if(has_slot(s.old, r))
    s.loading_count = s.loading_count + one_if(is_loading(s, r)) - one_if(is_loading(s.old, r))


def enter_waiting_tail(s: State, r: Expr, status: Status) -> None:
    """The request joins the waiting queue behind everybody."""
    set_status(s, r, status)
    s.in_waiting[r] = True
    s.in_running[r] = False
    s.before[:, :] = lambda x, y: ite(
        y == r, s.old.in_waiting[x] & (x != r), ite(x == r, False, s.before[x, y])
    )


def enter_waiting_head(s: State, r: Expr, status: Status) -> None:
    """The request joins the waiting queue in front of everybody (a preempted one resumes first)."""
    set_status(s, r, status)
    s.in_waiting[r] = True
    s.in_running[r] = False
    s.before[:, :] = lambda x, y: ite(
        x == r, s.old.in_waiting[y] & (y != r), ite(y == r, False, s.before[x, y])
    )


def enter_running(s: State, r: Expr) -> None:
    """The request leaves the waiting queue and runs."""
    set_status(s, r, Status.RUNNING)
    s.in_waiting[r] = False
    s.in_running[r] = True
    s.kv_holding[r] = False
    leave_order(s, r)


def leave_order(s: State, r: Expr) -> None:
    """The request has no place in the waiting order any more."""
    s.before[:, :] = lambda x, y: s.before[x, y] & (x != r) & (y != r)


# steps


def schedule_row(s: State, k: Expr, r: Expr) -> None:
    """The request takes part in the step being built; a worker hears of it as new only once per incarnation."""
    s.row[k, r] = Row.CURRENT
    s.epoch_over[k, r] = False
    s.told_new[r] = ite(s.announced[r], s.told_new[r], at_most_two(s.told_new[r] + 1))
    s.announced[r] = True


def end_epoch(s: State, r: Expr, becomes: object) -> None:
    """Rows in flight belong to the past: those in dispatched steps become `becomes`, the one being built is undone."""
    s.row[:, r] = lambda k: ite(
        s.row[k, r] == Row.NONE,
        Row.NONE,
        ite(
            s.flight[k] == Flight.DISPATCHED, ite(s.row[k, r] == Row.DROPPED, Row.DROPPED, becomes), Row.NONE
        ),
    )
    s.epoch_over[:, r] = lambda k: s.epoch_over[k, r] | (s.row[k, r] != Row.NONE)
    s.row_samples[:, r] = 0


def unpromise(s: State, r: Expr) -> None:
    """Blocks that the request was going to compute in this pass are not in the prefix cache after all."""
    s.cached[:] = lambda b: s.cached[b] & ~s.promised[r, b]
    s.promised[r, :] = False


def give_back_share(s: State, r: Expr) -> None:
    """The request's share of the pool, held or promised, is free for others."""
    s.used = s.used - s.held[r]
    s.reserved = s.reserved - ite(s.held[r] >= 1, s.want[r] - s.held[r], 0)
    s.held[r] = 0


def forget_tokens(s: State, r: Expr) -> None:
    """A preempted request recomputes: nothing is computed, awaited or drafted."""
    s.computed[r] = 0
    s.placeholders[r] = 0
    s.drafts[r] = 0


# transfers


def begin_transfer(s: State, r: Expr, kind: Kind, state: Transfer) -> None:
    """A transfer starts on all blocks of the request's new table."""
    s.transfer[r, kind] = state
    s.pinned[r, kind, :] = lambda b: s.table[r, b]
    s.remote[r, kind, :] = lambda b: s.table[r, b]


def end_transfer(s: State, r: Expr, kind: Kind | Expr, state: object) -> None:
    """A transfer is over: nobody touches its blocks any more, and its custody ends."""
    s.transfer[r, kind] = state
    s.pinned[r, kind, :] = False
    s.remote[r, kind, :] = False


# preemption and finishing


def preempt(s: State, r: Expr, becomes: object) -> None:
    """Give the table back and recompute later; steps and transfers keep the blocks that they touch."""
    enter_waiting_head(s, r, Status.PREEMPTED)
    unpromise(s, r)
    drop_table(s, r)
    end_epoch(s, r, becomes)
    forget_tokens(s, r)
    give_back_share(s, r)
    s.enc_ref[r, :] = False
    settle(s)


def finish(s: State, r: Expr, reason: object, hold: object) -> None:
    """End a request in whatever unfinished state it is in.

    The table is given back; blocks that a transfer still touches stay pinned. `hold` is the connector's answer that it
    will send the blocks first. A normal end ships the KV cache to the next stage unless that was triggered before; an
    abnormal one cancels a hand-off that was not shipped yet. With a transfer left, the request waits for it.
    """
    held = every(hold)
    receive = s.transfer[r, Kind.RECEIVE]
    handoff = s.transfer[r, Kind.HANDOFF]
    ship = every(
        handoff_stage == 1,
        ends_normally(reason),
        ~s.triggered[r],
        handoff == Transfer.NONE,
        exists(Block, lambda b: s.table[r, b]),
    )
    cancel = (handoff == Transfer.NEEDED) & ~ends_normally(reason)

    for mark in (s.pinned, s.remote):
        mark[r, Kind.SEND, :] = lambda b, mark=mark: ite(held, s.table[r, b], mark[r, Kind.SEND, b])
        mark[r, Kind.HANDOFF, :] = lambda b, mark=mark: ite(
            ship, s.table[r, b], mark[r, Kind.HANDOFF, b] & ~cancel
        )
    s.transfer[r, Kind.SEND] = ite(held, Transfer.ACTIVE, s.transfer[r, Kind.SEND])
    s.transfer[r, Kind.HANDOFF] = ite(ship, Transfer.NEEDED, ite(cancel, Transfer.NONE, handoff))
    s.transfer[r, Kind.RECEIVE] = ite(receive.is_in(Transfer.DONE, Transfer.FAILED), Transfer.NONE, receive)
    s.params_made[r, Kind.SEND] = held
    s.params_made[r, Kind.HANDOFF] = outstanding_kind(s, r, Kind.HANDOFF)
    s.output_params[r, Kind.SEND] = held
    s.output_params[r, Kind.HANDOFF] = outstanding_kind(s, r, Kind.HANDOFF)
    s.handoffs[r] = ite(ship, at_most_two(s.handoffs[r] + 1), s.handoffs[r])
    s.ended_badly[r] = ~ends_normally(reason)

    drop_table(s, r)
    end_epoch(s, r, Row.DROPPED)
    forget_tokens(s, r)
    s.known[r] = 0
    set_status(s, r, ite(outstanding(s, r), Status.WAITING_FOR_TRANSFER_FREE, reason))
    s.in_waiting[r] = False
    s.in_running[r] = False
    leave_order(s, r)
    s.kv_holding[r] = False
    s.triggered[r] = False
    s.parked_running[r] = False
    s.chunk_ready[r] = False
    s.polled[r] = False
    s.notice[r] = True
    s.enc_ref[r, :] = False
    s.finish_hooks[r] = at_most_two(s.finish_hooks[r] + 1)
    settle(s)


def outstanding_kind(s: State, r: Expr, kind: Kind) -> Expr:
    """The transfer of this kind is needed, active or lost."""
    return every(s.transfer[r, kind].is_in(*OUTSTANDING))


def blame(s: State, party: Party) -> None:
    """A breach of contract is recorded against its sender; the engine goes on."""
    s.blamed[party] = True
    s.breached[party] = True
