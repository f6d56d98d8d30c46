"""Custody: who holds a block, and that the free pool knows."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, State, every
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    GONE,
    OUTSTANDING,
    Block,
    Flight,
    Kind,
    Request,
    Status,
    Step,
    spec,
)


@spec.safety(ids=("P1", "PIN", "HOLD"))
def a_free_block_is_not_touched_by_a_transfer(s: State, b: Block, r: Request, kind: Kind) -> Implication:
    """No block is in the free pool while a remote party may still read or write it."""
    return when(s.remote[r, kind, b]).then(~s.free[b])


@spec.safety(ids=("P1",))
def a_free_block_is_not_touched_by_a_step(s: State, b: Block, k: Step) -> Implication:
    """No block is in the free pool while a dispatched step may still read or write it."""
    return when(s.running_step[k, b]).then(~s.free[b])


@spec.safety(ids=("P1", "P11"))
def a_free_block_is_in_no_table(s: State, b: Block, r: Request) -> Implication:
    """No block is in the free pool while a request has it in its block table."""
    return when(s.table[r, b]).then(~s.free[b])


@spec.safety(ids=("P2", "DRAIN"))
def a_block_that_is_not_free_has_a_holder(s: State, b: Block) -> Implication:
    """No block leaks: one that is not in the free pool is in a table, pinned by a transfer, or held by a step."""
    return when(~s.free[b]).then(do.is_held(s, b))


@spec.safety(ids=("P11",))
def a_free_block_is_in_the_free_list_once(s: State, b: Block) -> Implication:
    """The free list has every free block exactly once."""
    return when(s.free[b]).then(s.listed[b] == 1)


@spec.safety(ids=("P11",))
def a_held_block_is_not_in_the_free_list(s: State, b: Block) -> Implication:
    """The free list has no block that is held."""
    return when(~s.free[b]).then(s.listed[b] == 0)


@spec.safety(ids=("P4", "ABSORB"))
def a_request_that_is_gone_has_no_block_table(s: State, r: Request, b: Block) -> Implication:
    """A finished, held or freed request has given its table back; only transfers and steps may still hold its blocks."""
    return when(s.status[r].is_in(*GONE)).then(~s.table[r, b])


@spec.safety(ids=("P2", "P4"))
def a_waiting_request_without_loaded_kv_has_no_block_table(s: State, r: Request, b: Block) -> Implication:
    """Only a request that was loaded, or keeps its last turn, holds blocks while it waits."""
    return when(
        s.status[r].is_in(
            Status.WAITING, Status.PREEMPTED, Status.WAITING_FOR_GRAMMAR, Status.WAITING_FOR_CHUNK
        ),
        ~s.kv_holding[r],
        ~s.parked_running[r],
    ).then(~s.table[r, b])


@spec.safety(ids=("P4",), lemma=True)
def an_idle_session_keeps_its_kv(s: State, r: Request, b: Block) -> Implication:
    """A session that waits for its client, and was not preempted, holds its computed blocks."""
    return when(s.status[r] == Status.WAITING_FOR_STREAMING_REQ, s.table[r, b]).then(s.kv_holding[r])


@spec.safety(ids=("P1",), lemma=True)
def what_a_remote_party_touches_is_pinned(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """The scheduler's record of transfers covers the truth."""
    return when(s.remote[r, kind, b]).then(s.pinned[r, kind, b])


@spec.safety(ids=("P1",), lemma=True)
def what_a_worker_touches_is_held_by_its_step(s: State, k: Step, b: Block) -> Implication:
    """The scheduler's record of steps covers the truth."""
    return when(s.running_step[k, b]).then(s.step_holds[k, b])


@spec.safety(ids=("PIN",), lemma=True)
def a_pinned_block_is_not_free(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """A transfer's record keeps the block out of the free pool."""
    return when(s.pinned[r, kind, b]).then(~s.free[b])


@spec.safety(ids=("P1",), lemma=True)
def a_block_held_by_a_step_is_not_free(s: State, k: Step, b: Block) -> Implication:
    """A step's record keeps the block out of the free pool."""
    return when(s.step_holds[k, b]).then(~s.free[b])


@spec.safety(ids=("P2", "DRAIN", "SETS"))
def only_an_outstanding_transfer_pins_blocks(s: State, r: Request, kind: Kind, b: Block) -> Implication:
    """A transfer that is over, or never began, holds nothing."""
    return when(s.pinned[r, kind, b]).then(s.transfer[r, kind].is_in(*OUTSTANDING))


@spec.safety(ids=("P2",))
def only_a_dispatched_step_holds_blocks(s: State, k: Step, b: Block) -> Implication:
    """A step that is answered, or not yet dispatched, holds nothing."""
    return when(s.step_holds[k, b]).then(s.flight[k] == Flight.DISPATCHED)


@spec.count("ref", over=Request)
def tables_with_the_block(s: State, b: Block, r: Request) -> Expr:
    """The reference count of a block is the number of tables it is in."""
    return every(s.table[r, b])
