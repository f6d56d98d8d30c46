"""vllm-omni's AR scheduler for the explorer: hand-offs and chunks at the hook points of `vllm.extension`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from vllm_lifecycle.adapters.vllm.binding import Observed
from vllm_lifecycle.adapters.vllm.contract import LEGAL
from vllm_lifecycle.adapters.vllm.driver import Driver
from vllm_lifecycle.adapters.vllm.events import Acknowledge, Chunk, Event, Refuse
from vllm_lifecycle.adapters.vllm.extension import Extension
from vllm_lifecycle.adapters.vllm.questions import SNAPSHOT, TAKEN
from vllm_lifecycle.adapters.vllm.scope import Scope
from vllm_lifecycle.adapters.vllm.truth import Step
from vllm_lifecycle.adapters.vllm.violation import Violation
from vllm_lifecycle.spec.lang.sparse import Cells

from .bound import BOUND
from .chunks import Chunks
from .config import configure, without_threads
from .handoffs import Handoffs
from .scopes import PORTFOLIO
from .seams import Seams


class Omni(Extension):
    """One driver's hand-offs and chunks."""

    bound: ClassVar[Mapping[str, Callable[[Observed], Cells]]] = BOUND

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.seams = Seams(driver.scheduler)
        self.handoffs = Handoffs(driver, self.seams)
        self.chunks = Chunks(driver, self.seams) if driver.scope.chunks else None

    @staticmethod
    def configure(config: Any, scope: Scope) -> None:
        """Hand-off criteria and chunk settings."""
        configure(config, scope)

    @staticmethod
    def building() -> AbstractContextManager[object]:
        """No thread is started."""
        return without_threads()

    @staticmethod
    def portfolio() -> Sequence[Scope]:
        """Hand-offs and chunks first."""
        return PORTFOLIO

    def observe(self) -> None:
        """New marks; one turn of the receiving loop."""
        self.handoffs.observe()
        if self.chunks:
            self.chunks.send()
            self.chunks.observe()

    def dispatched(self, step: Step) -> None:
        """The step may ship hand-offs."""
        self.handoffs.dispatched(step)

    def answering(self, step: Step, answer: Any) -> None:
        """The answer may carry acknowledgements."""
        self.handoffs.answering(step, answer)

    def carried(self) -> tuple[str, ...]:
        """Acknowledgements."""
        return ("acknowledgement",) if self.handoffs.carries else ()

    def candidates(self) -> Iterator[Event]:
        """Acknowledgements and chunks."""
        if self.driver.scope.handoff:
            yield from self.handoffs.candidates()
        if self.chunks:
            yield from self.chunks.candidates()
            if self.driver.scope.refusals:
                yield Refuse()

    def judge(self, event: Event) -> str | None:
        """The contract's word on acknowledgements and chunks."""
        match event:
            case Acknowledge():
                return self.handoffs.judge(event)
            case Chunk() if self.chunks:
                return self.chunks.judge(event)
            case Refuse() if self.chunks and not (self.chunks.store.refuses or self.chunks.lost):
                return LEGAL
        return None

    def apply(self, event: Event) -> None:
        """An acknowledgement or a chunk."""
        match event:
            case Acknowledge():
                self.handoffs.acknowledge(event)
            case Chunk() if self.chunks:
                self.chunks.arrive(event)
            case Refuse() if self.chunks:
                self.chunks.store.refuses = self.driver.truth.mishap = True

    def promises(self) -> list[Violation]:
        """Snapshots are as long as the code's own words say; no chunk is dropped without a word."""
        lost = self.chunks.lost if self.chunks else ()
        return [
            *(Violation(SNAPSHOT, rid, text) for rid, text in self.handoffs.short.items()),
            *(Violation(TAKEN, rid, f"the chunk of {rid} that was refused is forgotten") for rid in lost),
        ]

    def owed(self) -> list[Event]:
        """What a fair worker and a fair former stage do now."""
        return [*self.handoffs.owed(), *(self.chunks.owed() if self.chunks else ())]

    def state(self) -> tuple[Any, ...]:
        """For the canonical form."""
        return self.handoffs.state(), self.chunks.state() if self.chunks else ()
