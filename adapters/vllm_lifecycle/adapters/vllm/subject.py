"""What the parts that only look need of a scheduler under test: the driver and the monitor provide it.

Binding, verdicts, questions and the families' extensions are written against this and not against the driver, which imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vllm_lifecycle.spec.lang.sparse import Cells

from .scope import Scope
from .snapshot import Observer, Snapshot
from .truth import Truth
from .violation import Violation


class Subject(Protocol):
    """A scheduler under test, its scope and the truth about it."""

    scheduler: Any
    observer: Observer
    scope: Scope
    truth: Truth

    @property
    def extension(self) -> object:
        """What its family adds (see `extension`)."""

    @property
    def further(self) -> Mapping[str, Callable[[Any], Cells]]:
        """Variables of the specification that only its family has, as functions of an observed state."""

    def promises(self) -> list[Violation]:
        """Promises of its family's own words that are broken now."""

    def tracked(self, rid: str) -> Any:
        """The request object that the scheduler tracks under that id."""

    def tag(self, rid: str) -> tuple[int, ...]:
        """What tells the present run of a request from others."""

    def snapshot(self) -> Snapshot:
        """What can be seen now."""
