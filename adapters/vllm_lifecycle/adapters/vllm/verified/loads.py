"""What the connector's worker side reports: loads and sends that are done, and blocks whose load failed.

Each report is matched with a transfer that is under way, or counted against the connector. It names an id only, but it comes
with the answer of a step, and workers hear of a transfer with the first step that leaves after it began: an earlier step's
answer cannot speak of it. (Of a send after a completed request the client hears at once, and who reads from it may be done
before.) A failed block costs every request that has it in the part that was loaded, by itself or by the one it shares the block
with, whose load an earlier step may have begun: they compute again from the first such block on, or end with an error, as the
deployment says. What is not whole leaves the prefix cache, under either policy.

Cited: get_finished of distributed/kv_transfer/kv_connector/v1/base.py, whose ids are among those that finished up to its step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches
from vllm_lifecycle.spec.lifecycles.vocabulary import Party
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Loads:
    """Applies the connector's part of an answer to the kernel; `step` is the number of the answered step, None when unknown."""

    def __init__(self, kernel: Kernel, breaches: Breaches, recompute: bool) -> None:
        self._kernel = kernel
        self._breaches = breaches
        self.recompute = recompute

    def invalid(self, blocks: set[int]) -> list[Seq]:
        """Blocks whose load failed; gives the requests that are to end for it (none when the deployment recomputes)."""
        kernel, size = self._kernel, self._kernel.store.block_size
        ending: dict[str, Seq] = {}
        background: set[str] = set()
        hit = False
        for seq in list(kernel.loading()):
            first = self._first(seq, blocks, None)
            if first is None:
                continue
            hit = True
            if self._signal(lambda: kernel.receive_failed(seq.id, first * size)):  # noqa: B023
                seq.external = max(0, min(seq.external, first * size))
            if not self.recompute:
                ending[seq.id] = seq
                background.add(seq.id)
        for seq in list(kernel.running):
            first = self._first(seq, blocks, -(-seq.cached_tokens // size))
            if first is None:
                continue
            hit = True
            kernel.recompute(seq, first * size)
            seq.external = max(0, min(seq.external, first * size))
            if not self.recompute:
                ending[seq.id] = seq
        if not hit:
            self._breaches.count(
                Party.CONNECTOR, "invalid blocks", f"nobody loads the blocks {sorted(blocks)[:8]}"
            )
        # in the order in which vLLM ends them, which is that of a set
        return [ending[rid] for rid in background | (ending.keys() - background)]

    def nothing_came(self, rid: str, step: int | None) -> Seq | None:
        """The load of this request failed as a whole; the request, or None when it does not load."""
        seq = self._kernel.seqs.get(rid)
        if seq is None or seq.reason is not None:
            self._breaches.count(Party.CONNECTOR, "failed load", f"{rid!r} does not load")
            return None
        if not self._signal(lambda: self._kernel.receive_failed(rid, 0, step)):
            return None
        seq.external = 0
        return seq

    def _first(self, seq: Seq, blocks: set[int], upto: int | None) -> int | None:
        """The first place of the table, among those before `upto`, that has one of the blocks."""
        places = [
            i
            for group in self._kernel.store.table(seq)
            for i, block in enumerate(group[:upto])
            if block in blocks
        ]
        return min(places, default=None)

    def matched(self, report: Any, step: int | None) -> tuple[list[str], list[str]]:
        """Loads and sends that the report may speak of: those under way before the answer that it came with was processed."""
        seqs = self._kernel.seqs
        received, sent = report.finished_recving or (), report.finished_sending or ()
        ours = [rid for rid in received if rid in seqs and seqs[rid].receive is not None]
        theirs = [rid for rid in sent if rid in seqs and seqs[rid].send is not None]
        self.finished(set(received).difference(ours), set(sent).difference(theirs), step)
        return ours, theirs

    def finished(self, received: Iterable[str], sent: Iterable[str], step: int | None) -> None:
        """Loads and sends that are done."""
        for rid in received:
            self._signal(lambda: self._kernel.receive_finished(rid, step))  # noqa: B023
        for rid in sent:
            self._signal(lambda: self._kernel.send_finished(rid, step))  # noqa: B023

    def _signal(self, tell: Any) -> bool:
        try:
            tell()
        except Refused as refusal:
            self._breaches.refused(refusal)
            return False
        return True
