"""The specification at the sizes used here, compiled once."""

from __future__ import annotations

from functools import cache

import pytest
from tests.refinement import lockstep

from vllm_lifecycle.spec.lang.compiled import Program


@cache
def compiled(requests: int, blocks: int, steps: int, features: tuple[str, ...]) -> Program:
    """One program per size and set of features."""
    return lockstep.program(requests, blocks, steps, *features)


@pytest.fixture
def compile_at():
    """Gives the specification at a size, with some features or all."""
    return lambda requests, blocks, steps, *features: compiled(requests, blocks, steps, features)
