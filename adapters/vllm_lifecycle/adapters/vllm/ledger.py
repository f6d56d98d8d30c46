"""What a scheduler and its connector agreed on, hook by hook, as truth.

The answers of a connector decide which transfers there are: an asynchronous match with an allocation after it is a receive, a
`request_finished` that keeps the blocks is a send.  Whoever answers (the driver's script, a connector of the user's), the ledger
writes it down, and with `judge_answers` it says when an answer breaks the interface's own rules.
"""

from __future__ import annotations

from typing import Any

from .truth import HookCall, Life, Transfer, Truth

Groups = tuple[tuple[int, ...], ...]


class Ledger:
    """Writes the connector's side of a `Truth`."""

    def __init__(self, truth: Truth, block_size: int, null: int) -> None:
        self.truth = truth
        self.block_size = block_size
        self.null = null
        self._local: dict[str, int] = {}

    def life(self, request: Any) -> Life | None:
        """Whose request object it is."""
        owners = (*self.truth.lives.values(), *self.truth.past)
        return next((life for life in owners if life.request is request), None)

    def record(self, hook: str, request: Any, detail: str = "") -> None:
        """A hook was called."""
        self.truth.hooks.append(HookCall(hook, request.request_id, detail))

    def matched(self, request: Any, local: int, extra: int | None, between: bool) -> None:
        """The connector says how many tokens it has beyond `local`, and whether it loads them between steps."""
        self._local[request.request_id] = local
        life = self.life(request)
        if life is not None:
            life.asked_between_steps = bool(between and extra)
            life.undecided = extra is None
        self.record("get_num_new_matched_tokens", request, f"{extra}, {'async' if between else 'sync'}")

    def allocated(self, request: Any, blocks: Groups, external: int) -> None:
        """The scheduler gave the blocks that a load will fill."""
        self.record("update_state_after_alloc", request, f"{blocks}, {external} external tokens")
        life = self.life(request)
        if not external or life is None:
            return
        first = self._local.get(request.request_id, 0)
        span = range(first // self.block_size, -(-(first + external) // self.block_size))
        filled = tuple(g[i] for g in blocks for i in span if i < len(g) and g[i] != self.null)
        if life.asked_between_steps:
            self.truth.transfers.append(Transfer("receive", life.rid, life.epoch, filled, None))
        else:
            self.truth.loading[life.rid] = filled

    def held(self, blocks: Groups) -> tuple[int, ...]:
        """The blocks that a send would read."""
        return tuple(b for group in blocks for b in group if b != self.null)

    def finished(self, request: Any, blocks: Groups, sends: bool) -> None:
        """A request ended, and the connector keeps its blocks or lets them go."""
        self.record("request_finished", request, f"{blocks} -> {'send' if sends else 'nothing to send'}")
        life = self.life(request)
        if life is None:
            return
        life.finished_calls += 1
        if sends:
            moving = Transfer("send", life.rid, life.epoch, self.held(blocks), None)
            self.truth.transfers.append(moving)
