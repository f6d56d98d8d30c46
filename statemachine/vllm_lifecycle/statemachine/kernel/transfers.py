"""Transfers of one incarnation: what the connector and a later stage still do with its blocks.

A record exists from the moment a transfer is under way to the moment its end is known; the blocks that it touches stay held by it
as long. Whoever reports about an id is matched with the record of the incarnation that has the id, or with none.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lifecycles.vocabulary import Kind
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.hold import Hold


class Transfer:
    """A receive, a send or a hand-off of one incarnation.

    state   NEEDED until a hand-off is shipped, ACTIVE while it is under way; DONE or FAILED once a receive has reported and the
            request has not yet been told
    hold    the blocks that it holds by itself; None while the request's own table holds them
    valid   tokens of a receive that came whole; None for all of them
    tokens  length of a hand-off's snapshot
    since   the clock of the kernel when it began, for a deadline
    first   number of the first step whose answer can tell its end: no worker hears of it before that step
    """

    __slots__ = ("first", "hold", "kind", "since", "state", "tokens", "valid")

    def __init__(
        self,
        kind: Kind,
        state: State = State.ACTIVE,
        hold: Hold | None = None,
        since: float = 0.0,
        tokens: int = 0,
        first: int = 0,
    ) -> None:
        self.kind = kind
        self.state = state
        self.hold = hold
        self.valid: int | None = None
        self.since = since
        self.tokens = tokens
        self.first = first
