"""Sizes at which the specification is looked at in tests."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status


def domain(requests: int, blocks: int, steps: int, entries: int) -> Domain:
    """The domain of these sizes, with constants that fit; one reason stands for all ways to stop."""
    given = {
        "max_tokens": 2,
        "max_num_seqs": requests,
        "max_requests": requests,
        "pool_blocks": blocks,
        "max_want": 2,
        "encoder_budget": entries,
    }
    sizes = {"Request": requests, "Block": blocks, "Step": steps, "Entry": entries}
    return Domain(
        {sort: tuple(range(n)) for sort, n in sizes.items()},
        {c.name: given.get(c.name, 1) for c in SYSTEM.consts},
        {"Status": (Status.FINISHED_STOPPED,)},
    )
