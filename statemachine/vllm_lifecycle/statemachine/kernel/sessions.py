"""Streaming input sessions: one request, one incarnation, whose client sends its input in turns.

A turn ends where a plain request would: the request gives its slot back, keeps its blocks and waits for the client. The next
input joins what is computed of it; the token that ended the turn is not computed, and is forgotten. Its transfers go on as if
nothing had happened: a hand-off belongs to the incarnation, not to the turn.

Rejected: a new incarnation for each turn (its blocks, hand-off and id would change hands in between); a slot for a session that
waits for its client.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.seq import Seq


class SessionKernel(Kernel):
    """A kernel for an engine whose clients may go on with a request; who waits for one is in `idle`."""

    def end_turn(self, seq: Seq) -> None:
        """RUNNING -> WAITING_FOR_STREAMING_REQ with its blocks; or PREEMPTED, on a token of its last run, and in its place.

        What is still in flight of it is dropped.
        """
        self._require(seq.status in (Status.RUNNING, Status.PREEMPTED) and not seq.held_kv, "end_turn", seq)
        if seq.lockstep is not None:
            seq.lockstep.leave(seq)
        if seq.status is Status.RUNNING:
            self.running.remove(seq)
            self.holding.append(seq)
            seq.held_kv = True
            seq.run += 1
            seq.computed = min(seq.computed - seq.placeholders, len(seq.tokens))
            seq.placeholders = 0
            seq.drafts = ()
        seq.deliver_from = seq.run
        seq.status = Status.WAITING_FOR_STREAMING_REQ
        self.idle[seq] = None

    def continue_session(self, seq: Seq, tokens: Sequence[int], limit: int) -> None:
        """WAITING_FOR_STREAMING_REQ -> WAITING, in its place: more input, and the longest answer to it.

        What is computed so far becomes prompt, and what was answered after it, the token that ended the turn, is forgotten; of an
        empty input it is all that is left to compute, so that it stays then.
        """
        self._require(seq.status is Status.WAITING_FOR_STREAMING_REQ, "continue_session", seq)
        kept = self.kept(seq) if tokens else len(seq.tokens)
        if kept + len(tokens) <= seq.computed:
            raise self.refuse("continue_session", f"{seq!r}: nothing is left to compute", Party.CLIENT)
        del seq.tokens[kept:]
        del seq.hashes[kept // self.store.block_size :]
        seq.tokens.extend(tokens)
        seq.outputs.clear()
        seq.prompt = len(seq.tokens)
        seq.limit = limit
        seq.anew = True
        seq.status = Status.WAITING
        del self.idle[seq]

    def give_up_kept_blocks(self, seq: Seq) -> None:
        """WAITING with the blocks of its last turn: it gives them to others that wait, and computes again later."""
        self._require(
            seq.status is Status.WAITING and seq.held_kv and seq not in self.loads, "give_up_kept_blocks", seq
        )
        self._end_table(seq)
        seq.last_step = 0
        seq.computed = 0
        seq.held_kv = False
        if self.holding is not self.waiting:
            self.holding.remove(seq)
            self.waiting.prepend(seq)

    @staticmethod
    def kept(seq: Seq) -> int:
        """Tokens of an idle session that stay: those that are computed; all but the last one if it has no table."""
        return seq.computed if seq.held_kv else len(seq.tokens) - bool(seq.outputs)
