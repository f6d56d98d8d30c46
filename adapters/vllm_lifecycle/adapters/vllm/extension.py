"""What a family of schedulers adds to vLLM: the hook points at which its part of the environment is played.

The base class adds nothing and serves plain vLLM.  A family is recognised by the package that a class of the target's
inheritance comes from (`FAMILIES`), never by a version.  Rejected: subclasses of the driver, the worker and the contract
(a family adds to each of them at one point, and all of it belongs together).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

from vllm_lifecycle.spec.lang.sparse import Cells

from .binding import Observed
from .events import Event
from .portfolio import PORTFOLIO
from .scope import Scope
from .subject import Subject
from .truth import Step
from .violation import Violation

_OMNI = "vllm_lifecycle.adapters.omni.extension:Omni"
FAMILIES: dict[str, str] = {
    "vllm_omni": _OMNI,
    "vllm_lifecycle.adapters.omni": _OMNI,
    "vllm_lifecycle.adapters.vllm.verified": "vllm_lifecycle.adapters.vllm.own:Own",
}
"""Package that a scheduler class comes from -> the extension that plays what it adds."""


class Blocks(NamedTuple):
    """Block ids within `Extension.state`, where other numbers are what they are."""

    ids: tuple[int, ...]


class Extension:
    """Adds nothing: plain vLLM."""

    bound: ClassVar[Mapping[str, Callable[[Observed], Cells]]] = {}
    """Variables of the specification that only this family has, and how they are observed."""

    def __init__(self, driver: Subject) -> None:
        self.driver = driver

    @staticmethod
    def configure(config: Any, scope: Scope) -> None:
        """Complete the vLLM configuration as the scope wants it."""

    @staticmethod
    def building() -> AbstractContextManager[object]:
        """Entered while a scheduler is built."""
        return nullcontext()

    @staticmethod
    def portfolio() -> Sequence[Scope]:
        """The scopes explored when none is named."""
        return PORTFOLIO

    def observe(self) -> None:
        """Called after each event, to write down what the scheduler committed itself to."""

    def dispatched(self, step: Step) -> None:
        """A step was dispatched."""

    def answering(self, step: Step, answer: Any) -> None:
        """The worker is about to give this answer to the step."""

    def carried(self) -> tuple[str, ...]:
        """Kinds of what the next answer carries besides tokens and the connector's reports."""
        return ()

    def candidates(self) -> Iterator[Event]:
        """Further events that the scope speaks of."""
        return iter(())

    def judge(self, event: Event) -> str | None:
        """The contract's word on one of the further events; None when there is nothing to apply it to."""
        return None

    def apply(self, event: Event) -> None:
        """Make one of the further events happen."""

    def promises(self) -> list[Violation]:
        """What the family's own words promise and does not hold now (see `questions.PROMISES`)."""
        return []

    def owed(self) -> list[Event]:
        """Further events that a fair environment owes now."""
        return []

    def state(self) -> tuple[Any, ...]:
        """What the canonical form has to know of it, ids as they are."""
        return ()


def extension_of(cls: type[Any]) -> type[Extension]:
    """The extension for a scheduler class."""
    for base in cls.__mro__:
        names = (
            name for package, name in FAMILIES.items() if f"{base.__module__}.".startswith(f"{package}.")
        )
        name = next(names, None)
        if name:
            module, _, kind = name.partition(":")
            found: type[Extension] = getattr(importlib.import_module(module), kind)
            return found
    return Extension
