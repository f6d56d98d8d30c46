"""Exploring several scopes at once: a process per scope, forked from the one that has vLLM imported.

Forked because that costs 20 ms, where a fresh interpreter imports vLLM again (6 to 20 s of CPU, a minute on a busy machine). It
is safe here: a search uses no thread, and the child begins by taking standard streams of its own, so that it waits for no lock
that a drawing thread of its parent held. A process per scope and not a pool of them, so that one that dies takes only its scope
along: that scope is not established then, with what became of its process as the reason, and so is one that gives no sign of
life. Scopes begin in their order, each has its own seed, and results are put together in that order, so that a search which no
time cuts off has the same findings and counts with any number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Generic, TypeVar

Tell = Callable[[str], None]
T = TypeVar("T")

SILENCE = 60.0
"""Seconds without a sign of life, after its time is over, until a process is taken for hanging."""
FAREWELL = 20.0
"""Seconds that interrupted processes have to hand in what they found."""
MOST = 2
"""Processes unless the user says otherwise; never more than processors."""


@dataclass(frozen=True)
class Lost:
    """What became of a process that gave no result; one line."""

    reason: str


class Failed(Exception):
    """A process met an error of ours; the message is its traceback."""


def default_jobs() -> int:
    """Processes to use when the user names no number."""
    return min(
        MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def can_fork() -> bool:
    """Whether this system forks processes."""
    return "fork" in multiprocessing.get_all_start_methods()


@dataclass
class _Running(Generic[T]):
    place: int
    process: BaseProcess
    channel: Connection
    due: float
    heard: float


class Pool(Generic[T]):
    """Runs tasks by number, at most `jobs` at once; `done` is asked after each result whether to begin no further one.

    A task is called in its process with a function to tell its progress, and with the seconds that it may take.
    """

    def __init__(self, jobs: int, tell: Tell, silence: float = SILENCE) -> None:
        self.jobs, self.tell, self.silence = jobs, tell, silence
        self.interrupted = False
        self._before: Any = None
        self._running: list[_Running[T]] = []
        self._context: Any = multiprocessing.get_context("fork")

    def run(
        self,
        tasks: Sequence[Callable[[Tell, float], T]],
        seconds: Callable[[int, Sequence[float]], float],
        last: Callable[[T], bool],
    ) -> Iterator[tuple[int, T | Lost]]:
        """Results as they come, with the number of their task; `seconds` gives a task its time.

        It is told the number of the task and until when the other processes are busy. After a result for which `last` is
        true, and after Ctrl-C, no further task begins; those that are going on hand in what they have. Raises Failed.
        """
        waiting = list(enumerate(tasks))
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self.jobs and not self.interrupted:
                    place, task = waiting.pop(0)
                    self._begin(place, task, seconds(place, [r.due for r in self._running]))
                if self.interrupted:
                    waiting.clear()
                for place, result in self._hear():
                    if not isinstance(result, Lost) and last(result):
                        waiting.clear()
                    yield place, result
        finally:
            signal.signal(signal.SIGINT, self._before)
            for r in self._running:
                r.process.kill()
                r.process.join()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: the processes are told and have a little time left, and whoever cared before is told.  A second one ends it."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        for r in self._running:
            r.due = time.monotonic() + FAREWELL - self.silence
            with suppress(ProcessLookupError):
                os.kill(r.process.pid or 0, signal.SIGINT)
        if callable(self._before):
            with suppress(KeyboardInterrupt):
                self._before(number, frame)

    def _begin(self, place: int, task: Callable[[Tell, float], T], seconds: float) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(theirs, task, seconds), daemon=True)
        process.start()
        theirs.close()
        now = time.monotonic()
        self._running.append(_Running(place, process, ours, now + seconds, now))

    def _hear(self) -> list[tuple[int, T | Lost]]:
        """What came within a second."""
        ready = wait([r.channel for r in self._running], 1.0)
        out: list[tuple[int, T | Lost]] = []
        for r in list(self._running):
            if r.channel in ready:
                found = self._receive(r)
            elif time.monotonic() > max(r.due, r.heard if not self.interrupted else 0.0) + self.silence:
                r.process.kill()
                found = Lost(f"its process, which gave no sign of life for {self.silence:g} s")
            else:
                continue
            if found is not None:
                r.process.join()
                r.channel.close()
                self._running.remove(r)
                out.append((r.place, found))
        return out

    def _receive(self, r: _Running[T]) -> T | Lost | None:
        """A result, the end of the process, or None for a sign of life, which is passed on."""
        try:
            kind, what = r.channel.recv()
        except (EOFError, OSError):
            r.process.join()
            return Lost(f"the end of its process ({_end(r.process.exitcode)}) and what it had found is lost")
        match kind:
            case "line":
                r.heard = time.monotonic()
                self.tell(what)
                return None
            case "error":
                raise what
        result: T = what
        return result


def _end(code: int | None) -> str:
    """An exit code in words."""
    if code is not None and code < 0:
        return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    return f"exit code {code}"


def _work(channel: Connection, task: Callable[[Tell, float], Any], seconds: float) -> None:
    """What a process does: the task, with its own streams, and the first Ctrl-C only."""

    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    sys.stdout = sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    signal.signal(signal.SIGINT, once)
    try:
        result = task(lambda line: channel.send(("line", line)), seconds)
    except BaseException as error:
        channel.send(("error", _portable(error)))
    else:
        channel.send(("result", result))


def _portable(error: BaseException) -> BaseException:
    """An error that its reader knows what to do with; others become Failed with their traceback."""
    from .config import Unusable
    from .correspondence import MissingSeam

    if isinstance(error, Unusable | MissingSeam):
        return type(error)(str(error))
    return Failed("".join(traceback.format_exception(error)))
