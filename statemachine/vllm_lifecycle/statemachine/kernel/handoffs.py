"""Hand-off to a later stage: a snapshot of a request's blocks is copied by a worker while the request runs, or after it finished.

One hand-off per incarnation. Its snapshot is pinned from the moment it is named until the acknowledgement, whatever happens to
the request meanwhile: preemption, abort, finish, a send or a cache reset. A request that ends in error or is aborted before its
hand-off was shipped is not shipped at all; one that ends normally without a trigger is shipped then, whole.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lifecycles.vocabulary import Kind, Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.kernel import COMPLETED
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.kernel.transfers import Transfer


class HandoffKernel(SessionKernel):
    """A kernel for an engine whose requests are handed on to a later stage."""

    def trigger_handoff(self, seq: Seq, tokens: int) -> None:
        """Not triggered -> NEEDED while the request runs: the blocks of its first `tokens` tokens are pinned from now on."""
        self._require(seq.status is Status.RUNNING, "trigger_handoff", seq)
        self._require(not seq.triggered, "trigger_handoff", seq, "it was triggered before")
        self._require(
            0 < tokens <= seq.computed_now, "trigger_handoff", seq, f"{tokens} tokens are not computed"
        )
        seq.handoff = self._needed(seq, tokens)
        seq.triggered = True

    def ship_handoff(self, seq: Seq) -> Transfer:
        """NEEDED -> ACTIVE: this pass tells the worker to copy the blocks that the record holds."""
        transfer = seq.handoff
        self._require(
            transfer is not None and transfer.state is State.NEEDED,
            "ship_handoff",
            seq,
            "nothing is to be shipped",
        )
        assert transfer is not None
        transfer.state = State.ACTIVE
        return transfer

    def handoff_acknowledged(self, id: str) -> None:
        """acknowledge_handoff: the next stage has its copy."""
        seq = self.seqs.get(id)
        transfer = None if seq is None else seq.handoff
        if seq is None or transfer is None or transfer.state is not State.ACTIVE:
            raise self.refuse(
                "refuse_unmatched_report", f"no hand-off of {id!r} is outstanding", Party.WORKER
            )
        self._end_transfer(seq, transfer)

    def _needed(self, seq: Seq, tokens: int) -> Transfer:
        return Transfer(Kind.HANDOFF, State.NEEDED, self.store.pin(seq, tokens), self._clock(), tokens)

    def _part(self, seq: Seq, reason: Status) -> None:
        """What becomes of the hand-off when the request ends."""
        transfer = seq.handoff
        if reason in COMPLETED:
            tokens = min(seq.computed, len(seq.tokens))
            if not seq.triggered and transfer is None and any(self.store.table(seq)) and tokens:
                seq.handoff = self._needed(seq, tokens)
        elif transfer is not None and transfer.state is State.NEEDED:
            seq.handoff = None
            assert transfer.hold is not None
            self.store.let_go(transfer.hold)
