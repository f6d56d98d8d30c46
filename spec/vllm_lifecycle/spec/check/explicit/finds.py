"""Finds: from the place where the packed search met something to the steps that show it, confirmed by the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_lifecycle.spec.check.explicit.claims import Target
from vllm_lifecycle.spec.check.explicit.layout import Word
from vllm_lifecycle.spec.check.explicit.model import Model, State
from vllm_lifecycle.spec.check.explicit.traces import (
    Canon,
    EngineError,
    in_order_of_use,
    path_to,
    replay,
    single,
    state_at,
)
from vllm_lifecycle.spec.check.verdict import TraceStep
from vllm_lifecycle.spec.lang import evaluate as ev


@dataclass(frozen=True, slots=True)
class Find:
    """Where something was found: a state of a level, or a step that leaves it."""

    state: State
    level: int
    on_step: bool = False


def steps_to(
    model: Model, levels: Sequence[list[Word]], canon: Canon, find: Find, target: Target | None
) -> tuple[TraceStep, ...]:
    """The shortest trace to a find; EngineError unless the reference evaluator confirms it (a target of None needs no more)."""
    rows = path_to(model, levels, find.state, find.level, canon)
    steps, state = replay(model, in_order_of_use(model, rows))
    if target is None:
        return tuple(steps)
    if not find.on_step:
        if _confirmed(target, ev.Context(model.domain, state)):
            return tuple(steps)
        raise EngineError(f"the reference evaluator does not confirm the find of {target.name}")
    # Under symmetry the state reached is a renaming of the one found, and so is the step: look at all that leave it.
    batch = model.expander.expand(single(model.layout.encode(state)))
    for i in range(len(batch.row)):
        after = model.decode(state_at(batch.words, i))
        if _confirmed(target, ev.Context(model.domain, state, after)):
            return (*steps, *replay(model, [model.rows[int(batch.row[i])]], state)[0])
    raise EngineError(f"the reference evaluator does not confirm the step found for {target.name}")


def _confirmed(target: Target, context: ev.Context) -> bool:
    return any(True for _ in ev.violations(target.params, target.claim, context))
