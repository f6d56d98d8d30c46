"""Transfers and hand-offs: each belongs to one incarnation, ends once, and pins what it names."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State, exists
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    FINISHED,
    OUTSTANDING,
    OVER,
    Block,
    Kind,
    Request,
    Status,
    Transfer,
    handoff_stage,
    spec,
)


@spec.safety(ids=("P9", "SETS"))
def an_outstanding_transfer_belongs_to_a_tracked_request(s: State, r: Request, kind: Kind) -> Implication:
    """The id of a request stays in use until its last transfer is over."""
    return when(s.transfer[r, kind].is_in(*OUTSTANDING)).then(s.status[r] != Status.FREED)


@spec.safety(ids=("P4",), lemma=True)
def a_finished_request_with_no_wait_has_no_transfer(s: State, r: Request, kind: Kind) -> Implication:
    """A finished request with a transfer outstanding is in WAITING_FOR_TRANSFER_FREE, not in FINISHED_*."""
    return when(s.status[r].is_in(*FINISHED)).then(s.transfer[r, kind] == Transfer.NONE)


@spec.safety(ids=("P3",))
def only_a_finished_request_sends(s: State, r: Request) -> Implication:
    """A connector sends a request's blocks only after it has finished."""
    return when(s.transfer[r, Kind.SEND] != Transfer.NONE).then(
        s.status[r] == Status.WAITING_FOR_TRANSFER_FREE
    )


@spec.safety(ids=("P3", "P4"))
def a_request_that_waits_for_remote_kv_has_a_receive(s: State, r: Request) -> Implication:
    """Nobody waits for a transfer that does not exist."""
    return when(s.status[r] == Status.WAITING_FOR_REMOTE_KVS).then(
        s.transfer[r, Kind.RECEIVE] != Transfer.NONE
    )


@spec.safety(ids=("P3", "P4"), lemma=True)
def a_receive_belongs_to_a_request_that_waits_for_it_or_ended(s: State, r: Request) -> Implication:
    """A receive is consumed before its request runs, or outlives it."""
    return when(s.transfer[r, Kind.RECEIVE] != Transfer.NONE).then(
        s.status[r].is_in(Status.WAITING_FOR_REMOTE_KVS, Status.WAITING_FOR_TRANSFER_FREE)
    )


@spec.safety(ids=("P3",), lemma=True)
def a_receive_is_never_merely_needed(s: State, r: Request) -> Implication:
    """A receive starts at once."""
    return when(s.transfer[r, Kind.RECEIVE] != Transfer.NONE).then(
        s.transfer[r, Kind.RECEIVE] != Transfer.NEEDED
    )


@spec.safety(ids=("P3",), lemma=True)
def a_receive_outcome_belongs_to_a_request_that_still_waits(s: State, r: Request) -> Implication:
    """The outcome of a receive is kept only for a request that waits for it."""
    return when(s.transfer[r, Kind.RECEIVE].is_in(Transfer.DONE, Transfer.FAILED)).then(
        s.status[r] == Status.WAITING_FOR_REMOTE_KVS
    )


@spec.safety(ids=("DRAIN",), lemma=True)
def a_send_or_handoff_has_no_outcome_to_keep(s: State, r: Request, kind: Kind) -> Implication:
    """Only receives have an outcome that the request needs later."""
    return when(s.transfer[r, kind].is_in(Transfer.DONE, Transfer.FAILED)).then(kind == Kind.RECEIVE)


@spec.safety(ids=("DRAIN",), lemma=True)
def a_send_starts_at_once(s: State, r: Request) -> Implication:
    """A send is active as soon as the request has finished."""
    return when(s.transfer[r, Kind.SEND] != Transfer.NONE).then(s.transfer[r, Kind.SEND] != Transfer.NEEDED)


@spec.step(ids=("P3", "SETS"))
def a_transfer_ends_only_when_nobody_touches_its_blocks(
    s: State, r: Request, kind: Kind, b: Block
) -> Implication:
    """Custody is not dropped while the other side may still touch the block."""
    return when(s.old.pinned[r, kind, b], ~s.pinned[r, kind, b]).then(~s.remote[r, kind, b])


@spec.safety(ids=("ONCE",))
def a_request_is_handed_off_at_most_once(s: State, r: Request) -> Implication:
    """One hand-off per incarnation."""
    return when(s.handoffs[r] >= 1).then(s.handoffs[r] == 1)


@spec.safety(ids=("ONCE",))
def a_request_that_ended_badly_is_not_waiting_to_be_shipped(s: State, r: Request) -> Implication:
    """An aborted or failed request is not shipped any more."""
    return when(s.ended_badly[r]).then(s.transfer[r, Kind.HANDOFF] != Transfer.NEEDED)


@spec.safety(ids=("SETS",))
def a_trigger_mark_belongs_to_a_live_request(s: State, r: Request) -> Implication:
    """The once-mark of a hand-off goes with its incarnation."""
    return when(s.triggered[r]).then(do.is_unfinished(s, r))


@spec.safety(ids=("ONCE",), lemma=True)
def a_trigger_mark_counts_one_handoff(s: State, r: Request) -> Implication:
    """The once-mark is set exactly by a hand-off."""
    return when(s.triggered[r]).then(s.handoffs[r] == 1)


@spec.safety(ids=("ONCE",), lemma=True)
def an_unfinished_request_without_mark_was_not_handed_off(s: State, r: Request) -> Implication:
    """No hand-off without the once-mark while the request lives."""
    return when(do.is_unfinished(s, r), ~s.triggered[r]).then(
        (s.handoffs[r] == 0) & (s.transfer[r, Kind.HANDOFF] == Transfer.NONE)
    )


@spec.safety(ids=("ONCE",), lemma=True)
def a_live_request_did_not_end_badly(s: State, r: Request) -> Implication:
    """The mark of a bad end goes with its incarnation."""
    return when(s.ended_badly[r]).then(s.status[r].is_in(*OVER))


@spec.safety(ids=("ONCE",))
def the_output_carries_the_parameters_of_every_transfer(s: State, r: Request, kind: Kind) -> Implication:
    """Parameters that a connector or a hand-off made for the client reach the final output."""
    return when(s.params_made[r, kind]).then(s.output_params[r, kind])


@spec.step(ids=("ONCE",))
def a_request_that_ends_normally_is_handed_off(s: State, r: Request) -> Implication:
    """Where a later stage waits for it, a request that ends normally with blocks has been handed off."""
    return when(
        handoff_stage == 1,
        do.is_unfinished(s.old, r),
        s.status[r].is_in(*OVER),
        ~s.ended_badly[r],
        exists(Block, lambda b: s.old.table[r, b]),
    ).then(s.handoffs[r] == 1)


@spec.step(ids=("ONCE",))
def a_request_handed_off_at_its_end_ships_all_its_blocks(s: State, r: Request, b: Block) -> Implication:
    """Every block of every KV group is named in a hand-off that begins when the request ends."""
    return when(
        s.old.transfer[r, Kind.HANDOFF] == Transfer.NONE,
        s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED,
        s.status[r] == Status.WAITING_FOR_TRANSFER_FREE,
        s.old.table[r, b],
    ).then(s.remote[r, Kind.HANDOFF, b])


@spec.step(ids=("ONCE",))
def a_handoff_names_some_block(s: State, r: Request) -> Implication:
    """Nothing is shipped for a request that never had a block."""
    return when(
        s.transfer[r, Kind.HANDOFF] == Transfer.NEEDED, s.old.transfer[r, Kind.HANDOFF] != Transfer.NEEDED
    ).then(exists(Block, lambda b: s.remote[r, Kind.HANDOFF, b]))
