"""The specification at the sizes used here, compiled once."""

from __future__ import annotations

from functools import cache

from tests.refinement import lockstep

from vllm_lifecycle.spec.lang.compiled import Program


@cache
def compiled(
    requests: int, blocks: int, steps: int, features: tuple[str, ...], order: bool = True
) -> Program:
    """One program per size and set of features."""
    return lockstep.program(requests, blocks, steps, *features, order=order)
