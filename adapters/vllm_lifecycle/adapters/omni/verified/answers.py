"""Answers of the worker on vllm-omni 0.16.0: what in them triggers a hand-off.

A snapshot holds computed tokens only. The KV of a sentinel is computed by the step after the one that sampled it, so that its
hand-off begins when that step is answered, and ends with the sentinel exactly. Rejected: to begin at once, one token short
(OmniARScheduler._process_kv_transfer_trigger); to end the request's own run for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_lifecycle.adapters.omni.verified.settings import PREFILL, TOKEN, Handing
from vllm_lifecycle.adapters.omni.verified.v016 import Answers016
from vllm_lifecycle.adapters.vllm.verified import lockstep
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Step


class Facts(lockstep.Requests):
    """Lockstep decoders are those whose answers trigger nothing; a sentinel is one of the tokens that go the general way.

    vectors   the model's rows carry outputs for the next stage, which are passed on one by one
    wanted    requests whose sentinel was sampled and is not computed yet -> tokens up to and with it
    """

    def __init__(self, ends: lockstep.Ends, extend_keys: Callable[[Seq], None], handing: Handing) -> None:
        super().__init__(ends, extend_keys)
        self.handing = handing
        self.vectors = False
        self.wanted: dict[Seq, int] = {}

    def fits(self, seq: Seq) -> bool:
        waits = self.handing.trigger == PREFILL and not seq.triggered
        return not (self.vectors or waits or seq in self.wanted) and super().fits(seq)

    def stops(self, seq: Seq) -> frozenset[int]:
        found, sentinel = super().stops(seq), self.handing.token
        return found if self.handing.trigger != TOKEN or sentinel is None else found | {sentinel}


class AnswersOmni(Answers016):
    """Answers, whose tokens may trigger hand-offs.

    begin   makes the hand-off of a running request, of so many tokens
    sent    takes what goes to the next stage with an output; None where stages do not send in chunks
    """

    facts: Facts
    begin: Callable[[Seq, int], None]
    sent: Callable[[Any, Any], None] | None = None

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        if answer.pooler_output and not self.facts.vectors:
            self.facts.vectors = True
            if self.kernel.columns is not None:
                self.kernel.columns.dissolve()
        return super().process(step, answer)

    def stopped(self, seq: Seq, reason: Status) -> Any:
        self.facts.wanted.pop(seq, None)  # a sentinel that ends a turn is not computed
        return super().stopped(seq, reason)

    def _conclude(
        self, answer: Any, seq: Seq, tokens: list[int], reason: Status | None, place: int, vector: Any
    ) -> Any:
        trigger = self.facts.handing.trigger
        if trigger and not seq.triggered:
            if trigger == TOKEN:
                self._at_sentinel(seq, tokens)
            elif reason is None:
                self._when_computed(seq, seq.prompt, 0)
        made = super()._conclude(answer, seq, tokens, reason, place, vector)
        if made is not None and self.sent is not None:
            self.sent(vector, seq.payload)
        return made

    def _at_sentinel(self, seq: Seq, tokens: list[int]) -> None:
        wanted, sentinel = self.facts.wanted, self.facts.handing.token
        if seq not in wanted and sentinel in tokens:
            wanted[seq] = len(seq.tokens) - len(tokens) + tokens.index(sentinel) + 1
            if seq.lockstep is not None:
                seq.lockstep.leave(seq)
        if seq in wanted and self._when_computed(seq, wanted[seq], wanted[seq]):
            del wanted[seq]

    def _when_computed(self, seq: Seq, least: int, tokens: int) -> bool:
        """The hand-off of a running request begins if so many tokens are computed: of `tokens`, or (0) of all that are."""
        computed = min(seq.computed_now, len(seq.tokens))
        if seq.status is not Status.RUNNING or computed < least:
            return False
        self.begin(seq, tokens or computed)
        return True
