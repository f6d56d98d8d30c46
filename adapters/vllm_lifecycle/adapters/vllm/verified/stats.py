"""Statistics and request events, as vLLM counts them; one object that does nothing when they are off.

Rule: what is counted here is never read by a decision.  Counters that vLLM resets when it reports them are replaced by fresh
objects, since the report keeps the old ones.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine import EngineCoreEventType
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from vllm_lifecycle.statemachine.kernel.seq import Seq


class Stats:
    """Counts hits of the prefix cache and of the connector, accepted drafts, and the events of requests."""

    def __init__(self, on: bool, connector: bool, drafts: int, caching: bool) -> None:
        self.on = on
        self.prefix: Any = PrefixCacheStats() if on else None
        self.external: Any = PrefixCacheStats() if on and connector else None
        self._caching = caching
        self._most_drafts = drafts
        self._drafted: Any = None

    def looked_up(self, seq: Seq, hits: int) -> None:
        """The prefix cache was asked for a request's tokens, and had `hits` of them."""
        if self.on and self._caching and not seq.skip_cache:
            self.prefix.record(len(seq.tokens), hits, seq.preemptions > 0)

    def loads(self, seq: Seq) -> None:
        """A request starts with what the connector brings for it."""
        if self.external is not None:
            self.external.record(len(seq.tokens), seq.external, seq.preemptions > 0)

    def drafted(self, drafts: int, accepted: int) -> None:
        """`accepted` of a request's drafts were right."""
        if self.on:
            if self._drafted is None:
                self._drafted = SpecDecodingStats.new(self._most_drafts)
            self._drafted.observe_draft(num_draft_tokens=drafts, num_accepted_tokens=accepted)

    def queued(self, request: Any) -> None:
        """A request arrived."""
        if self.on:
            request.record_event(EngineCoreEventType.QUEUED)

    def scheduled(self, request: Any, now: float) -> None:
        """A request was admitted in the pass that began at `now` (monotonic seconds)."""
        if self.on:
            request.record_event(EngineCoreEventType.SCHEDULED, now)

    def preempted(self, request: Any, now: float) -> None:
        """A request was preempted in the pass that began at `now` (monotonic seconds)."""
        if self.on:
            request.record_event(EngineCoreEventType.PREEMPTED, now)

    def take_prefix(self) -> Any:
        """Hits since the last report; None when statistics are off."""
        taken, self.prefix = self.prefix, PrefixCacheStats() if self.on else None
        return taken

    def take_external(self) -> Any:
        """The connector's hits since the last report; None without a connector."""
        taken = self.external
        if taken is not None:
            self.external = PrefixCacheStats()
        return taken

    def take_drafted(self) -> Any:
        """Accepted drafts since the last report; None when there were no drafts."""
        taken, self._drafted = self._drafted, None
        return taken
