"""Progress on standard error: one line that is redrawn on a terminal, plain lines a few seconds apart elsewhere.

Standard output belongs to the result alone, so that `--format json` can be piped whatever is going on.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

_PLAIN_INTERVAL = 5.0


class Reporter:
    """Draws the progress of one stage after the other."""

    def __init__(self) -> None:
        self._title = ""
        self._last = 0.0
        self._status: Status | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("")

    def begin(self, title: str) -> None:
        """A stage starts."""
        self._title, self._last = title, time.monotonic()
        if self._status is None:
            self._say(f"{title} ...")
        else:
            self._status.update(_literal(title))
            self._status.start()

    def line(self, text: str) -> None:
        """The stage tells how far it is; engines call this as often as they like."""
        now = time.monotonic()
        if self._status is not None:
            self._status.update(_literal(f"{self._title}: {text}"))
        elif now - self._last >= _PLAIN_INTERVAL:
            self._last = now
            self._say(f"{self._title}: {text}")

    def end(self, text: str) -> None:
        """The stage is over."""
        if self._status is not None:
            self._status.stop()
        self._say(f"{self._title}: {text}")

    @staticmethod
    def _say(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _literal(text: str) -> str:
    from rich.markup import escape

    return escape(text)
