"""Model steps in flight, and the blocks that wait for them.

A step holds every block of its rows until its output is processed. The table of a live request holds them too, so a hold of
the step's own is needed only when a table ends early: it is kept here, with the number of the last step that touches its
blocks, and let go once no step up to that number is outstanding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Row(NamedTuple):
    """A request's part in a step: which run of which incarnation, how many tokens, and how many of them are drafts.

    `awaited`: the most output tokens that it may bring; 0 for a chunk that leaves known tokens for later.
    """

    seq: Seq
    run: int
    tokens: int
    drafts: int
    awaited: int = 0


class Step:
    """A dispatched step: its number, the members that are served as one, and its rows, in the order of the plan.

    left: the run of each request that was a lockstep decoder while the step was in flight, and is not any more.
    """

    __slots__ = ("left", "lockstep", "number", "rows")

    def __init__(self, number: int, rows: list[Row], lockstep: list[Seq]) -> None:
        self.number = number
        self.rows = rows
        self.lockstep = lockstep
        self.left: dict[Seq, int] = {}


class Steps:
    """The steps that are dispatched and not answered, oldest first."""

    def __init__(self, let_go: Callable[[Hold], None]) -> None:
        self.number = 0
        self.outstanding: dict[int, Step] = {}
        self.waiting: list[tuple[int, Hold]] = []
        self._let_go = let_go

    def dispatch(self, rows: list[Row], lockstep: list[Seq]) -> Step:
        """A new step leaves for the workers."""
        self.number += 1
        step = Step(self.number, rows, lockstep)
        self.outstanding[step.number] = step
        return step

    def answer(self, step: Step) -> bool:
        """The step's output is here, so it touches no block any more; False for one that is not outstanding."""
        if self.outstanding.pop(step.number, None) is None:
            return False
        if self.waiting:
            self._release()
        return True

    def decoding(self) -> list[set[Seq]]:
        """For each outstanding step with rows, those of whom it has a row as a lockstep decoder has it: one token, no draft."""
        found = []
        for step in self.outstanding.values():
            if step.rows or step.lockstep:
                usual = {
                    row.seq for row in step.rows if row.run == row.seq.run and row.tokens == row.awaited == 1
                }
                found.append(usual | {seq for seq, run in step.left.items() if run == seq.run})
        return found

    def touches(self, last: int) -> bool:
        """Some step up to number `last` is still outstanding."""
        return any(number <= last for number in self.outstanding)

    def release_after(self, last: int, hold: Hold) -> None:
        """Let the blocks go when no step up to number `last` is outstanding (at once, if none is)."""
        if self.touches(last):
            self.waiting.append((last, hold))
        else:
            self._let_go(hold)

    def _release(self) -> None:
        oldest = next(iter(self.outstanding), self.number + 1)
        still = []
        for last, hold in self.waiting:
            if last >= oldest:
                still.append((last, hold))
            else:
                self._let_go(hold)
        self.waiting = still

    @property
    def held(self) -> list[Hold]:
        """Holds of steps: tables that ended while a step in flight touched them."""
        return [hold for _, hold in self.waiting]
