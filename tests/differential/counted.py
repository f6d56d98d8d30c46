"""What the mends of every release share: they count how often they made a difference, and they decide at two places of the pass.

vLLM's `schedule` is one body without seams. Its syntax tree gets two questions, one where a running request has found no blocks
and somebody is about to be preempted, one where the loop over running requests is about to end; nothing else is changed, and a
mend that does not answer leaves the pass as it is. Rejected: a copy of the body; rows that explain what such a mend removes, for
a run ends at a row, and other differences can hide behind it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from textwrap import dedent
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler as Own


def _tests_blocks(statement: ast.stmt, operator: type[ast.cmpop]) -> bool:
    """The statement is `if new_blocks is None`, or `is not None`."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Compare)
        and ast.unparse(statement.test.left) == "new_blocks"
        and isinstance(statement.test.ops[0], operator)
    )


def _asking(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which asks `nobody_gives_way` and `goes_on`; raises ValueError when it is not built as expected."""
    tree = ast.parse(dedent(inspect.getsource(schedule)))
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    running = next(loop for loop in loops if "self.running" in ast.unparse(loop.test))
    growing = next(node for node in ast.walk(running) if isinstance(node, ast.While) and node is not running)
    (found,) = (i for i, s in enumerate(growing.body) if _tests_blocks(s, ast.IsNot))
    growing.body[found + 1 : found + 1] = ast.parse("if self.nobody_gives_way(request):\n    break").body
    (ends,) = (i for i, s in enumerate(running.body) if _tests_blocks(s, ast.Is))
    running.body[ends:ends] = ast.parse("if new_blocks is None and self.goes_on(request):\n    continue").body
    names: dict[str, Any] = {}
    exec(
        compile(ast.fix_missing_locations(tree), "<schedule, asking>", "exec"),
        vars(sys.modules[schedule.__module__]),
        names,
    )
    made: Callable[..., Any] = names[schedule.__name__]
    return made


_SCHEDULE = _asking(Own.schedule)


class Counted(Own):  # type: ignore[misc]
    """Counts how often each mend made a difference, and asks its mends during the pass."""

    met: Counter[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.met = Counter()
        super().__init__(*args, **kwargs)

    def meets(self, mend: type[Any]) -> None:
        """The mend decides otherwise than the original would."""
        self.met[mend.__name__] += 1

    def schedule(self, *args: Any) -> Any:
        return _SCHEDULE(self, *args)

    def victim(self) -> Any:
        """The running request that the original would preempt."""
        if self.policy.value == "priority":
            return max(self.running, key=lambda r: (r.priority, r.arrival_time))
        return self.running[-1]

    def nobody_gives_way(self, request: Any) -> bool:
        """The loop over running requests ends here rather than that somebody is preempted for this one."""
        return False

    def goes_on(self, request: Any) -> bool:
        """The loop over running requests goes on behind this one, which has found no blocks."""
        return False


class PassesGoOn(Counted):
    """VLLM-26765: the pass goes on when a request gave way itself, for under priorities others run behind it."""

    def goes_on(self, request: Any) -> bool:
        behind: bool = request.status.name == "PREEMPTED" and self.policy.value == "priority"
        if behind:
            self.meets(PassesGoOn)
        return behind


class Numbered(Counted):
    """Knows which steps are in flight, and who takes part in them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = 0
        self.outstanding: dict[int, dict[str, int]] = {}
        """The number of each step in flight, and the tokens of its requests."""
        self.newest: dict[str, int] = {}
        """The last step of each request's present run."""
        self.dropped: set[tuple[int, str]] = set()
        """Rows of steps in flight that count for nothing any more."""

    def schedule(self, *args: Any) -> Any:
        output = super().schedule(*args)
        self.number += 1
        output.number = self.number
        self.outstanding[self.number] = dict(output.num_scheduled_tokens)
        self.newest.update(dict.fromkeys(output.num_scheduled_tokens, self.number))
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        rows = self.outstanding.pop(scheduler_output.number)
        self.answered(scheduler_output.number, rows)
        return super().update_from_output(scheduler_output, model_runner_output)

    def answered(self, number: int, rows: dict[str, int]) -> None:
        """The step is in flight no longer; what it held is given back before its rows are looked at."""

    def in_flight(self, rid: str) -> bool:
        """A step in flight touches what the request has, or has just given up."""
        return min(self.outstanding, default=self.number + 1) <= self.newest.get(rid, 0)

    def drop(self, rid: str) -> bool:
        """What steps in flight bring for the request counts for nothing; False when there is no such step."""
        rows = {(number, rid) for number, tokens in self.outstanding.items() if rid in tokens}
        self.dropped |= rows
        return bool(rows)
