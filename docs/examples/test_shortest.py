"""The policy does what it says, and the scheduler that follows it keeps every property of the lifecycle."""

from __future__ import annotations

from docs.examples.shortest_prompt_first import ShortestFirstScheduler, ShortestPromptFirst

from vllm_lifecycle.adapters.pytest_plugin import lifecycle_check
from vllm_lifecycle.statemachine.kernel.seq import Seq


def test_short_prompts_run_first() -> None:
    queue = ShortestPromptFirst().queue()
    for id, prompt in (("long", 9), ("short", 2), ("middle", 5)):
        queue.append(Seq(id, None, [0] * prompt, [], [], limit=1))
    assert [seq.id for seq in queue] == ["short", "middle", "long"]


def test_the_lifecycle_is_kept() -> None:
    lifecycle_check(ShortestFirstScheduler, scope="loads", seconds=15)
