"""Ctrl-C during an exploration: heard wherever it lands, and obeyed at the next event at the latest."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class Interruption:
    """Remembers a Ctrl-C, wherever it lands: what it is raised in (vLLM, Hypothesis, a finaliser) may swallow it.

    The handler that was there before still decides what a Ctrl-C does. Only a main thread hears of one.
    """

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        if callable(self._before):
            self._before(number, frame)

    def stop(self) -> None:
        """Raises KeyboardInterrupt if one came."""
        if self.came:
            raise KeyboardInterrupt
