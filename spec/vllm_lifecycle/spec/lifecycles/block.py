"""The block lifecycle, which no variable keeps: what a block is follows from who holds it and whether its hash is known.

A classification (one term of the state) with the successor list of its classes, written down independently of the actions.
The list becomes a property of every step, and each of its edges a witness, so that exploration holds the list to what
really happens in both directions. Where several users hold a block the first of RECEIVING, HELD, SENDING, IN_STEP names it.

Rejected: a state variable for it, which every action that touches a holder would have to assign.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Expr, State, every, exists, ite, variable
from vllm_lifecycle.spec.lang.machine import Param, Property, Witness
from vllm_lifecycle.spec.lifecycles.vocabulary import Block, Kind, Request, spec


class BlockState(Enum):
    """What a block is."""

    FREE = "FREE"
    """In the free pool, with nothing worth finding."""
    EVICTABLE = "EVICTABLE"
    """In the free pool, but the prefix cache still finds it."""
    RECEIVING = "RECEIVING"
    """A remote writer fills it."""
    HELD = "HELD"
    """In some request's block table."""
    SENDING = "SENDING"
    """In no table, but a send or a hand-off copies it."""
    IN_STEP = "IN_STEP"
    """In no table and no transfer, but a dispatched step reads or writes it."""


B = BlockState
SUCCESSORS: Mapping[BlockState, frozenset[BlockState]] = {
    B.FREE: frozenset({B.RECEIVING, B.HELD}),
    B.EVICTABLE: frozenset({B.FREE, B.RECEIVING, B.HELD}),
    B.RECEIVING: frozenset({B.FREE, B.EVICTABLE, B.HELD, B.SENDING, B.IN_STEP}),
    B.HELD: frozenset({B.FREE, B.EVICTABLE, B.RECEIVING, B.SENDING, B.IN_STEP}),
    B.SENDING: frozenset({B.FREE, B.EVICTABLE, B.RECEIVING, B.HELD, B.IN_STEP}),
    B.IN_STEP: frozenset({B.FREE, B.EVICTABLE, B.RECEIVING, B.HELD}),
}
"""State -> states that one action may lead to (itself not listed)."""


def state_of(s: State, b: Expr) -> Expr:
    """The class of a block in a state."""
    sent = exists(Request, lambda r: s.pinned[r, Kind.SEND, b] | s.pinned[r, Kind.HANDOFF, b])
    return ite(
        s.free[b],
        ite(s.cached[b], B.EVICTABLE, B.FREE),
        ite(
            exists(Request, lambda r: s.pinned[r, Kind.RECEIVE, b]),
            B.RECEIVING,
            ite(
                exists(Request, lambda r: s.table[r, b]),
                B.HELD,
                ite(sent, B.SENDING, B.IN_STEP),
            ),
        ),
    )


def _claims() -> tuple[Property, tuple[Witness, ...]]:
    """The successor list as a property of every step, and each of its edges as a step that can happen."""
    s, block = State(spec, primed=True), variable("b", Block)
    before, after = state_of(s.old, block), state_of(s, block)
    params = (Param("b", Block.sort()),)
    in_order = {x: [y for y in B if y in following] for x, following in SUCCESSORS.items()}
    allowed = every(*((before == x) >> after.is_in(x, *following) for x, following in in_order.items()))
    doc = "A block becomes only what the successor list allows."
    claim = Property("a_block_follows_its_lifecycle", "step", params, t.TRUE, allowed.term, (), False, doc)
    edges = tuple(
        Witness(
            f"can_take_a_block_from_{x.name}_to_{y.name}",
            params,
            every(before == x, after == y).term,
            None,
            f"Some step takes a block from {x.name} to {y.name}.",
        )
        for x, following in SUCCESSORS.items()
        for y in B
        if y in following
    )
    return claim, edges


FOLLOWS_ITS_LIFECYCLE, EDGES = _claims()
"""The claim of the successor list, and its witnesses."""
