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
    """Lockstep decoders are those whose answers trigger nothing.

    vectors   the model's rows carry outputs for the next stage, which are passed on one by one
    """

    handing: Handing = Handing()
    vectors = False

    def fits(self, seq: Seq) -> bool:
        if self.vectors or (self.handing.trigger and not seq.triggered and not self._later(seq)):
            return False
        return super().fits(seq)

    def _later(self, seq: Seq) -> bool:
        """What triggers it will be seen: a sentinel is one of the tokens that the columns leave to the general way."""
        return self.handing.trigger == TOKEN

    def stops(self, seq: Seq) -> frozenset[int]:
        found = super().stops(seq)
        sentinel = self.handing.token
        return found if self.handing.trigger != TOKEN or sentinel is None else found | {sentinel}


class AnswersOmni(Answers016):
    """Answers, whose tokens may trigger hand-offs.

    begin   makes the hand-off of a running request, of so many tokens
    facts   what the lockstep decoders ask
    wanted  requests whose sentinel was sampled -> tokens up to and with it
    """

    handing: Handing
    begin: Callable[[Seq, int], None]
    facts: Facts | None = None
    sent: Callable[[Seq, Any], None] | None = None
    """Takes what goes to the next stage with an output; None where stages do not send in chunks."""

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        if answer.pooler_output and self.facts is not None and not self.facts.vectors:
            self.facts.vectors = True
            if self.kernel.columns is not None:
                self.kernel.columns.dissolve()
        return super().process(step, answer)

    def _conclude(
        self, answer: Any, seq: Seq, tokens: list[int], reason: Status | None, place: int, vector: Any
    ) -> Any:
        if self.handing.trigger and not seq.triggered and seq.status is Status.RUNNING:
            self._trigger(seq, tokens, reason)
        made = super()._conclude(answer, seq, tokens, reason, place, vector)
        if made is not None and self.sent is not None:
            self.sent(seq, vector)
        return made

    def _trigger(self, seq: Seq, tokens: list[int], reason: Status | None) -> None:
        computed = min(seq.computed_now, len(seq.tokens))
        if self.handing.trigger == PREFILL:
            if reason is None and computed >= seq.prompt:
                self.begin(seq, computed)
            return
        place = self.sentinel(seq)
        if place and computed >= place:
            self.begin(seq, place)

    def sentinel(self, seq: Seq) -> int:
        """Tokens up to and with the first sentinel that was sampled; 0 without one."""
        try:
            return seq.prompt + seq.outputs.index(self.handing.token) + 1  # type: ignore[arg-type]
        except ValueError:
            return 0
