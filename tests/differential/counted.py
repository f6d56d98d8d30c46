"""What the mends of every release share: each counts how often it made a difference."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler as Own


class Counted(Own):  # type: ignore[misc]
    """Counts how often each mend made a difference."""

    met: Counter[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.met = Counter()
        super().__init__(*args, **kwargs)

    def meets(self, mend: type[Any]) -> None:
        """The mend decides otherwise than the original would."""
        self.met[mend.__name__] += 1
