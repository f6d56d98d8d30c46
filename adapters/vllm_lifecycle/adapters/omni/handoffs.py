"""The truth about hand-offs, and the worker's part in them.

A hand-off begins when the scheduler marks a request, with the blocks named then; the worker copies them in the step that
ships it.  From the mark to the acknowledgement the blocks are being read.  The acknowledgement travels as the real runner
sends it: with the sampled tokens of that same step, so that a step without tokens has none and no later one makes up for it.
With `late_acknowledgements` a worker that copies in the background is played: its acknowledgements never get lost but may
come in any later answer.
"""

from __future__ import annotations

from typing import Any, Literal

from vllm_lifecycle.adapters.vllm.config import SENTINEL_TOKEN
from vllm_lifecycle.adapters.vllm.contract import LEGAL
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import GHOST, Acknowledge
from vllm_lifecycle.adapters.vllm.truth import Life, Step, Transfer

from .seams import Seams

KIND: Literal["handoff"] = "handoff"
PARAMETERS = "past_key_values"
"""The key under which the final output names the blocks handed off."""
UNMATCHED = "an acknowledgement belongs to a hand-off that was shipped and not yet acknowledged"


class Handoffs:
    """The hand-offs of one driver."""

    def __init__(self, driver: Driver, seams: Seams) -> None:
        self.driver = driver
        self.seams = seams
        self.marked: set[str] = set()
        self.shipped: dict[int, tuple[str, ...]] = {}
        self.mail: list[str] = []
        self.short: dict[str, str] = {}
        """Snapshots at a token that end before it, until they are shipped."""

    def observe(self) -> None:
        """Write down hand-offs that were marked, or withdrawn, since the last look."""
        truth = self.driver.truth
        pending: dict[str, dict[str, Any]] = self.seams.get("hand-offs to ship")
        for rid, named in pending.items():
            if rid in self.marked:
                continue
            life = truth.lives[rid]
            life.handoffs += 1
            if life.request.is_finished():
                life.parameters |= {PARAMETERS}
            truth.transfers.append(Transfer(KIND, rid, life.epoch, tuple(named["block_ids"]), None))
            self._measure(life, int(named["seq_len"]))
        gone = [t for t in truth.transfers if t.kind == KIND and t.announced is None and t.rid not in pending]
        for withdrawn in gone:  # no worker was told of it
            truth.transfers.remove(withdrawn)
        self.marked = set(pending)
        self.short = {rid: text for rid, text in self.short.items() if rid in pending}

    def _measure(self, life: Life, length: int) -> None:
        """Hold the length of a snapshot that a token triggered against the place of that token."""
        tokens = list(life.request.all_token_ids)
        if self.driver.scope.handoff != "special_token" or life.request.is_finished():
            return
        place = tokens.index(SENTINEL_TOKEN) + 1
        if length < place:
            self.short[life.rid] = (
                f"the snapshot of {life.rid} ends at token {length}, the sentinel is token {place}"
            )

    def dispatched(self, step: Step) -> None:
        """The step tells the worker which blocks to copy."""
        shipped = tuple(step.output.finished_requests_needing_kv_transfer)
        self.shipped[step.number] = shipped
        for transfer in self.driver.truth.transfers:
            if transfer.kind == KIND and transfer.announced is None and transfer.rid in shipped:
                transfer.announced = step.number

    def answering(self, step: Step, answer: Any) -> None:
        """Put the acknowledgements into the answer that carries them."""
        shipped = self.shipped.pop(step.number, ())
        if not self.driver.scope.late_acknowledgements:
            for rid in shipped:
                self._over(rid)
            if step.tokens:
                self.mail += shipped
        answer.kv_extracted_req_ids = self.mail
        self.mail = []

    @property
    def carries(self) -> bool:
        """Whether the next answer has an acknowledgement."""
        steps = self.driver.truth.steps
        at_once = bool(steps and steps[0].tokens and self.shipped.get(steps[0].number))
        return bool(self.mail) or (at_once and not self.driver.scope.late_acknowledgements)

    def _over(self, rid: str) -> None:
        truth = self.driver.truth
        transfer = self.outstanding(rid)
        if transfer is not None:
            truth.transfers.remove(transfer)
            truth.emitted += 1

    def outstanding(self, rid: str) -> Transfer | None:
        """The shipped hand-off of that id that the worker has not acknowledged."""
        return next(
            (
                t
                for t in self.driver.truth.transfers
                if t.kind == KIND and t.rid == rid and t.announced is not None
            ),
            None,
        )

    def candidates(self) -> list[Acknowledge]:
        """Acknowledgements for everybody, the right and the wrong ones."""
        if not self.driver.truth.steps:
            return []
        return [Acknowledge(rid) for rid in (*self.driver.truth.lives, GHOST)]

    def judge(self, event: Acknowledge) -> str | None:
        """The right ones come by themselves unless the worker copies in the background."""
        steps = self.driver.truth.steps
        if not steps or event.rid in self.mail:
            return None
        transfer = self.outstanding(event.rid)
        if transfer is None:
            return UNMATCHED
        late = self.driver.scope.late_acknowledgements
        return LEGAL if late and (transfer.announced or 0) <= steps[0].number else None

    def acknowledge(self, event: Acknowledge) -> None:
        """The next answer carries it; custody ends when it is delivered."""
        truth = self.driver.truth
        transfer = self.outstanding(event.rid)
        if transfer is not None:
            truth.transfers.remove(transfer)
            truth.undelivered.append(transfer)
            truth.emitted += 1
        self.mail.append(event.rid)

    def owed(self) -> list[Acknowledge]:
        """What a fair worker acknowledges now."""
        return [e for e in self.candidates() if self.judge(e) == LEGAL]

    def state(self) -> tuple[Any, ...]:
        """For the canonical form."""
        first = self.driver.truth.steps[0].number if self.driver.truth.steps else 0
        return (
            tuple(sorted(self.marked)),
            tuple(sorted((number - first, rids) for number, rids in self.shipped.items())),
            tuple(self.mail),
        )
