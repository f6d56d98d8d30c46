"""Small scopes, exhaustively: every state that the kernel can reach, every move from it matched; counts are pinned.

A count that changes says that the kernel reaches other states than before: look why before pinning the new one.
"""

from __future__ import annotations

import pytest
from tests.refinement.conftest import compiled
from tests.refinement.lockstep import Mismatch
from tests.refinement.search import explore

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.correspondence import CORRESPONDS
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.kernel.transfers import Transfer

H = ("core", "handoff", "send", "load")

SCOPES = {
    "one request, two steps in flight, preempted": (
        (1, 2, 2),
        ("core", "preemption"),
        (1,),
        (657, 1115, 346),
    ),
    "prefix cache": ((2, 2, 1), ("core", "prefix", "preemption"), (1, 2), (5597, 13600, 10136)),
    "load, send and failure": (
        (2, 2, 1),
        ("core", "load", "send", "load_failure"),
        (1, 2),
        (3070, 8338, 13415),
    ),
    "loads that are found, failures and resets": (
        (2, 2, 1),
        ("core", "load", "load_failure", "prefix", "reset"),
        (1,),
        (4932, 14342, 16290),
    ),
    "grammar and resets": ((2, 2, 1), ("core", "grammar", "reset", "prefix"), (1, 2), (8655, 26698, 29079)),
    "two requests, two steps in flight": ((2, 2, 2), ("core",), (1, 2), (7440, 16498, 13236)),
    "sessions, two steps in flight, preempted": (
        (1, 2, 2),
        ("core", "sessions", "load", "preemption"),
        (1,),
        (2834, 5116, 6129),
    ),
    "sessions, hand-off, send and receive": ((1, 3, 1), (*H, "sessions"), (1,), (1069, 2119, 3301)),
    "two sessions": ((2, 2, 1), ("core", "sessions", "load"), (1,), (3248, 7674, 12255)),
    "hand-off, send, receive and preemption": ((1, 4, 2), (*H, "preemption"), (1, 2), (17859, 36986, 53430)),
    "hand-off and prefix cache": ((2, 2, 1), ("core", "handoff", "prefix"), (1, 2), (4845, 10152, 17181)),
    "hand-off, send and receive, two requests": ((2, 4, 1), H, (1, 2), (39079, 105860, 242493)),
}
"""Name -> requests x blocks x steps, features, prompt lengths, and (states, moves made, moves refused).

States are counted up to names of requests and blocks. Abort is a move in every scope, of every request between any two calls.
"""


@pytest.mark.parametrize("name", SCOPES)
def test_every_move_of_the_kernel_is_one_of_the_specification(name: str) -> None:
    size, features, prompts, counts = SCOPES[name]
    found = explore(compiled(*size, features), prompts)
    assert (found.states, found.made, found.refused) == counts
    if "sessions" in features:
        assert {"open", "turn", "more", "close", "give"} <= set(found.kinds)


class Unpinned(HandoffKernel):
    """A snapshot that is shipped is not held by itself."""

    def ship_handoff(self, seq: Seq) -> Transfer:
        transfer = super().ship_handoff(seq)
        assert transfer.hold is not None
        self.store.let_go(transfer.hold)
        transfer.hold = None
        return transfer


class ShipsTheAborted(HandoffKernel):
    """Who is aborted before his hand-off was shipped is shipped all the same."""

    def _part(self, seq: Seq, reason: Status) -> None:
        super()._part(seq, Status.FINISHED_STOPPED)


class ForgetsTheSend(HandoffKernel):
    """A send frees the request's id while a hand-off is still under way."""

    def _free_id(self, seq: Seq) -> None:
        handoff, seq.handoff = seq.handoff, None
        super()._free_id(seq)
        seq.handoff = handoff


class FreesUnderAStep(HandoffKernel):
    """A table that ends is given back although a step in flight writes to it."""

    def _end_table(self, seq: Seq) -> None:
        self.store.drop(seq)


class KeepsTheLastTurn(SessionKernel):
    """What is in flight of a turn that is over counts for the next one."""

    def end_turn(self, seq: Seq) -> None:
        before = seq.run, seq.deliver_from
        super().end_turn(seq)
        seq.run, seq.deliver_from = before


class LosesTheTurn(SessionKernel):
    """The blocks of a turn that is over are given back."""

    def end_turn(self, seq: Seq) -> None:
        super().end_turn(seq)
        self.store.drop(seq)


@pytest.mark.parametrize("kernel", [KeepsTheLastTurn, LosesTheTurn])
def test_a_kernel_with_a_fault_in_sessions_is_refuted(kernel: type[SessionKernel]) -> None:
    with pytest.raises(Mismatch, match=r"after .*turn of"):
        explore(compiled(1, 2, 2, ("core", "sessions", "load", "preemption")), (1, 2), kernel=kernel)


@pytest.mark.parametrize("kernel", [Unpinned, ShipsTheAborted, ForgetsTheSend, FreesUnderAStep])
def test_a_kernel_with_a_fault_is_refuted(kernel: type[HandoffKernel]) -> None:
    with pytest.raises(Mismatch, match=r"after .*add"):
        explore(compiled(2, 4, 1, H), (1, 2), kernel=kernel)


def test_the_table_names_operations_and_actions_that_exist() -> None:
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM

    actions = {action.name for action in SYSTEM.actions}
    for operation, names in CORRESPONDS.items():
        assert callable(getattr(HandoffKernel, operation))
        assert set(names) <= actions, operation
