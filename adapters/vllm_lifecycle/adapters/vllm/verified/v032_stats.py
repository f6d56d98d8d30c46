"""Statistics as vLLM 0.32.0 counts them: look-ups when a request goes on, loads by source, drafts without the invalid ones."""

from __future__ import annotations

from typing import Any

from vllm.v1.spec_decode.metrics import SpecDecodingStats

from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Stats032(Stats):
    """`Stats` of vLLM 0.32.0."""

    def loads_of(self, seq: Seq, local: int, external: int, sources: Any) -> None:
        """The connector was asked for the tokens behind the `local` ones, and had `external` of them."""
        self.external.record(
            num_tokens=len(seq.tokens) - local,
            num_hits=external,
            preempted=seq.preemptions > 0,
            hits_by_source=sources,
        )

    def drafted(self, drafts: int, accepted: int, invalid: int = 0) -> None:
        """`accepted` of a request's drafts were right; `invalid` ones the grammar had ruled out before."""
        if self.on and drafts:
            if self._drafted is None:
                self._drafted = SpecDecodingStats.new(self._most_drafts)
            self._drafted.observe_draft(num_draft_tokens=drafts - invalid, num_accepted_tokens=accepted)
