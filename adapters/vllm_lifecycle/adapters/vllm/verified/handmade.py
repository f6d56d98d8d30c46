"""Outputs that this scheduler did not make: vLLM's tests, and tools in front of a scheduler, put them together by hand.

Such an output names requests and tokens but no step. It stands for the oldest step in flight that scheduled just that; else a
step is dispatched for it, as if it had been planned, when all that it names can have run: each known request runs and nothing of
it is in flight. What it says otherwise is the answer of no step, and is refused (the property that no token is credited
without a step). Counters are left as whoever made the output has set them; workers are told nothing by it.
"""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.steps import Row, Step


def step_of(kernel: Kernel, output: Any, *, ahead: bool) -> Step | None:
    """The step that an output made by hand stands for; None when there is none and none can be. `ahead`: tokens are awaited."""
    told = output.num_scheduled_tokens
    for step in kernel.steps.outstanding.values():
        if told == {row.seq.id: row.tokens for row in step.rows} | dict.fromkeys(_ids(step), 1):
            return step
    if kernel.columns is not None:
        kernel.columns.dissolve()
    rows = []
    for rid, tokens in told.items():
        seq = kernel.seqs.get(rid)
        if seq is None:
            continue
        drafts = len(output.scheduled_spec_decode_tokens.get(rid, ()))
        awaited = 1 + drafts if seq.computed >= len(seq.tokens) else 0
        if seq.status is not Status.RUNNING or seq.in_flight or (ahead and seq.placeholders < awaited):
            return None
        rows.append(Row(seq, seq.run, tokens, drafts, awaited))
    if not rows:
        return None
    notices = kernel.notices
    for row in rows:
        row.seq.computed -= row.tokens  # they are in what its maker has set
    step = kernel.dispatch(rows, [])
    kernel.notices = notices
    return step


def _ids(step: Step) -> list[str]:
    return [seq.id for seq in step.lockstep]
