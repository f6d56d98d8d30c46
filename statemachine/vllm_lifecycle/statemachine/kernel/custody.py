"""Who holds which blocks, and what comes in about transfers and steps: the part of the kernel that no decision touches.

A table that ends while something still touches its blocks is not given back: its references move to whoever touches them (a
step in flight, a load, a send), and end when that is known to be over. A signal is matched with the transfer that is
outstanding for the incarnation that has the id; one that matches nothing is refused, and counted against its sender.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from vllm_lifecycle.spec.lifecycles.vocabulary import OVER, Kind, Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step, Steps
from vllm_lifecycle.statemachine.kernel.store import BlockStore
from vllm_lifecycle.statemachine.kernel.transfers import Transfer


class Custody:
    """Blocks, transfers and steps in flight.

    seqs        id -> the incarnation that has it (live, or finished and held by a transfer)
    refused     how many signals of each party matched nothing
    """

    def __init__(self, store: BlockStore, clock: Callable[[], float]) -> None:
        self.store = store
        self.seqs: dict[str, Seq] = {}
        self.steps = Steps(store.let_go)
        self.refused: Counter[tuple[Party | None, str]] = Counter()
        self._filling: dict[Seq, int] = {}
        self._grown: dict[Seq, tuple[list[int], ...]] = {}
        self._clock = clock
        self.columns: Columns | None = None

    def receive_output(self, step: Step) -> None:
        """DISPATCHED -> ANSWERED: the step touches no block any more."""
        if not self.steps.answer(step):
            raise self.refuse("receive_output", f"step {step.number} is not outstanding", Party.WORKER)
        if self.columns is not None:
            self.columns.answered(step)

    # signals of the connector

    def receive_finished(self, id: str, step: int | None = None) -> None:
        """receive_completes: the remote writer is done with the blocks of the request that has this id.

        `step` is the number of the step whose answer says so, where one does, here as for all reports.
        """
        seq, transfer = self._under_way(id, Kind.RECEIVE, step)
        if seq.status is Status.WAITING_FOR_REMOTE_KVS:
            transfer.state = State.DONE
        else:
            self._end_transfer(seq, transfer)

    def receive_failed(self, id: str, valid: int, step: int | None = None) -> None:
        """receive_fails, receive_completes_in_part: of the load under way only the first `valid` tokens come whole."""
        _, transfer = self._under_way(id, Kind.RECEIVE, step)
        transfer.valid = valid if transfer.valid is None else min(valid, transfer.valid)

    def send_finished(self, id: str, step: int | None = None) -> None:
        """send_completes: the remote reader has its copy."""
        seq, transfer = self._under_way(id, Kind.SEND, step)
        self._end_transfer(seq, transfer)

    def give_up_transfers(self, before: float) -> list[tuple[Seq, Kind]]:
        """Ends transfers of finished requests that began before the given time: their blocks may still be touched. A deadline."""
        late = [
            (seq, transfer)
            for seq in self.seqs.values()
            if seq.status is Status.WAITING_FOR_TRANSFER_FREE
            for transfer in (seq.receive, seq.send, seq.handoff)
            if transfer is not None and transfer.since < before
        ]
        for seq, transfer in late:
            self._end_transfer(seq, transfer)
        return [(seq, transfer.kind) for seq, transfer in late]

    def _under_way(self, id: str, kind: Kind, step: int | None) -> tuple[Seq, Transfer]:
        seq = self.seqs.get(id)
        transfer = None if seq is None else (seq.receive if kind is Kind.RECEIVE else seq.send)
        if seq is None or transfer is None or transfer.state is not State.ACTIVE:
            raise self.refuse(
                "refuse_unmatched_report", f"no {kind.name.lower()} of {id!r} is outstanding", Party.CONNECTOR
            )
        if step is not None and step < transfer.first:
            raise self.refuse(
                "refuse_unmatched_report",
                f"the {kind.name.lower()} of {id!r} began after that step had left",
                Party.CONNECTOR,
            )
        return seq, transfer

    def _end_transfer(self, seq: Seq, transfer: Transfer) -> None:
        if transfer.kind is Kind.RECEIVE:
            seq.receive = None
        elif transfer.kind is Kind.SEND:
            seq.send = None
        else:
            seq.handoff = None
        hold = transfer.hold
        if any(other is not None and other.hold is hold for other in (seq.receive, seq.send)):
            return  # another transfer still touches the blocks
        if transfer.hold is not None and transfer.kind is Kind.HANDOFF:
            self.store.let_go(transfer.hold)  # its references are its own: the table's end is another matter
        elif transfer.hold is not None:
            self.steps.release_after(seq.last_step, transfer.hold)  # these were the table's
        if seq.status in OVER:
            self._free_id(seq)

    # the prefix cache

    def reset(self) -> bool:
        """reset_prefix_cache, refuse_reset: every cached block is forgotten, unless some block is held."""
        return self.store.reset()

    def forget_cache(self) -> bool:
        """complete_forced_reset: every cached block is forgotten, held or not; False when some block is held."""
        if self.store.reset():
            return True
        self.store.evict(set(range(1, self.store.size)))
        return False

    # the end of a table

    def _pass_on(self, seq: Seq) -> None:
        """The table of an ended request becomes one hold of the transfers that still touch it, until the last of them is over."""
        hold = self.store.convert(seq)
        for transfer in (seq.receive, seq.send):
            if transfer is not None:
                transfer.hold = hold

    def _end_table(self, seq: Seq) -> None:
        if seq in self._filling:  # this pass was to compute them, and will not: they are not to be found
            self.store.evict(self._unfilled(seq))
            del self._filling[seq]
        if seq in self._grown:  # no step in flight touches what it got in this pass
            self.store.trim(seq, tuple(len(blocks) for blocks in self._grown.pop(seq)))
        if seq.in_flight and self.steps.touches(seq.last_step):
            self.steps.release_after(seq.last_step, self.store.convert(seq, counted=False))
        else:
            self.store.drop(seq)

    def _unfilled(self, seq: Seq) -> set[int]:
        """The blocks that this pass was to fill for the request, and that can be found already."""
        first = self._filling[seq]
        return {b for group in self.store.table(seq) for b in group[first : seq.cached_blocks] if b}

    def _is_relied_on(self, seq: Seq) -> bool:
        """Another request has such a block in its table."""
        unfilled, table = self._unfilled(seq), self.store.table
        others = (other for other in self.seqs.values() if other is not seq)
        return any(not unfilled.isdisjoint(group) for other in others for group in table(other))

    def _free_id(self, seq: Seq) -> None:
        """free_request, when no transfer is left; else the request waits for it."""
        if seq.receive is None and seq.send is None and seq.handoff is None:
            seq.status = Status.FREED
            del self.seqs[seq.id]
        else:
            seq.status = Status.WAITING_FOR_TRANSFER_FREE

    # refusals

    def _require(self, guard: bool, action: str, seq: Seq, why: str = "") -> None:
        if not guard:
            raise self.not_enabled(action, seq, why)

    def not_enabled(self, action: str, seq: Seq, why: str = "") -> Refused:
        """An operation that a record's state does not allow, to be raised before anything has changed."""
        return Refused(action, f"{seq!r}: {why or 'not in this state'}")

    def refuse(self, action: str, reason: str, party: Party) -> Refused:
        """A signal that matches nothing: counted against its sender, to be raised by the caller."""
        self.refused[party, action] += 1
        return Refused(action, reason, party)
