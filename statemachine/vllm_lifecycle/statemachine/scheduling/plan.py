"""The result of a pass: who takes part in the step, in order, with how many tokens, which blocks, drafts and encoder inputs."""

from __future__ import annotations

from itertools import islice

from vllm_lifecycle.statemachine.kernel.columns import Served
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row

Blocks = tuple[list[int], ...]
"""Block ids, one list per KV cache group."""


class Plan:
    """A step being built.

    lockstep    the part of the lockstep decoders, who come first in `tokens` and are in no other field; None without any
    members     the lockstep decoders
    running, new, resumed   who else takes part: was running before, is new to the workers, runs again after a preemption
    preempted   who gave way in this pass
    tokens      id -> tokens of this step, in order
    fresh       id -> block ids: the new ones of a running request, the whole table of one that was admitted
    drafts      id -> draft tokens that ride along
    encoder     id -> encoder inputs to compute
    loaded      ids whose connector loads for them before this step runs
    failed      who ended in this pass, for it can never run
    skipped     who was looked at and has to wait
    """

    __slots__ = (
        "drafts", "encoder", "failed", "fresh", "loaded", "lockstep", "members", "new", "preempted", "resumed",
        "running", "skipped", "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lockstep: Served | None = None
        self.members: list[Seq] = []
        self.running: list[Seq] = []
        self.new: list[Seq] = []
        self.resumed: list[Seq] = []
        self.preempted: list[Seq] = []
        self.failed: list[Seq] = []
        self.skipped: list[Seq] = []
        self.tokens: dict[str, int] = {}
        self.fresh: dict[str, Blocks] = {}
        self.drafts: dict[str, list[int]] = {}
        self.encoder: dict[str, list[int]] = {}
        self.loaded: set[str] = set()

    def serve(self, served: Served) -> None:
        """The lockstep decoders take part, before anybody else."""
        lanes = served.lanes
        self.lockstep, self.members, self.tokens = served, lanes.seqs, lanes.ones.copy()

    @property
    def total(self) -> int:
        """All tokens of the step."""
        members = len(self.members)
        if len(self.tokens) == members:
            return members
        return members + sum(islice(self.tokens.values(), members, None))

    def rows_of(self, seqs: dict[str, Seq]) -> list[Row]:
        """The rows of the step but for the lockstep decoders, in order."""
        rows: list[Row] = []
        for id, tokens in islice(self.tokens.items(), len(self.members), None):
            seq = seqs[id]
            ridden = len(self.drafts[id]) if id in self.drafts else 0
            samples = seq.computed + tokens >= len(seq.tokens) + seq.placeholders + ridden
            rows.append(Row(seq, seq.run, tokens, ridden, ridden + 1 if samples else 0))
        return rows

    def undo(self, seq: Seq) -> tuple[int, list[int]]:
        """A request that already took part gives way: its tokens and its encoder inputs, which are free again."""
        self.running.remove(seq)
        self.fresh.pop(seq.id)
        self.drafts.pop(seq.id, None)
        return self.tokens.pop(seq.id), self.encoder.pop(seq.id, [])
