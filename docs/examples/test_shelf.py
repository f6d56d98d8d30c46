"""The test that comes with the connector."""

from __future__ import annotations

from docs.examples.shelf_connector import Shelf

from vllm_lifecycle.adapters.pytest_plugin import lifecycle_check
from vllm_lifecycle.adapters.vllm import Scope

PROMPTS = Scope("shelf", adds=3, blocks=8, connector=True, prompts=(6, 8))
"""Prompts that end inside a block of 4 tokens, and prompts that fill their blocks."""


def test_the_shelf_keeps_its_contract() -> None:
    lifecycle_check(connector=Shelf, scope=PROMPTS, seconds=10)
