"""The scripted connector's answers, and the truth that they create.

The script answers each hook from the request's own script (`Life.match`, `Life.hold`) and writes down what the scheduler
committed itself to: which blocks a receive fills, which blocks a send reads.
"""

from __future__ import annotations

from typing import Any

from .truth import HookCall, Life, Transfer, Truth


class TruthScript:
    """Implements `connector.Script` on a `Truth`."""

    def __init__(self, truth: Truth, block_size: int, null: int) -> None:
        self.truth = truth
        self.block_size = block_size
        self.null = null
        self._local: dict[str, int] = {}

    def _life(self, request: Any) -> Life | None:
        owners = (*self.truth.lives.values(), *self.truth.past)
        return next((life for life in owners if life.request is request), None)

    def _record(self, hook: str, request: Any, detail: str = "") -> None:
        self.truth.hooks.append(HookCall(hook, request.request_id, detail))

    def matched(self, request: Any, local: int) -> tuple[int | None, bool]:
        life = self._life(request)
        self._local[request.request_id] = local
        claimed = 0 if life is None else life.match.tokens(request.num_tokens, self.block_size)
        extra = None if claimed is None else max(0, claimed - local)
        between = bool(life and life.match.between_steps and extra)
        if life is not None:
            life.asked_between_steps = between
        self._record("get_num_new_matched_tokens", request, f"{extra}, {'async' if between else 'sync'}")
        return extra, between

    def allocated(self, request: Any, blocks: tuple[tuple[int, ...], ...], external: int) -> None:
        self._record("update_state_after_alloc", request, f"{blocks}, {external} external tokens")
        life = self._life(request)
        if not external or life is None:
            return
        first = self._local.get(request.request_id, 0)
        span = range(first // self.block_size, -(-(first + external) // self.block_size))
        filled = tuple(g[i] for g in blocks for i in span if i < len(g) and g[i] != self.null)
        if life.asked_between_steps:
            self.truth.transfers.append(Transfer("receive", life.rid, life.epoch, filled, None))
        else:
            self.truth.loading[life.rid] = filled

    def finished(self, request: Any, blocks: tuple[tuple[int, ...], ...]) -> bool:
        held = tuple(b for group in blocks for b in group if b != self.null)
        life = self._life(request)
        sends = bool(life and life.hold and held)
        self._record("request_finished", request, f"{blocks} -> {'send' if sends else 'nothing to send'}")
        if life is not None:
            life.finished_calls += 1
            if sends:
                self.truth.transfers.append(Transfer("send", life.rid, life.epoch, held, None))
        return sends

    def other(self, hook: str, request: Any) -> None:
        self._record(hook, request)
