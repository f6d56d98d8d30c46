"""A hold: references to blocks that outlive the table they came from."""

from __future__ import annotations


class Hold:
    """References to blocks (per group of layers) that outlive a table, until they are let go, once.

    counted     the engine's own books still list it as a table: see `BlockStore.common_prefix`
    live        not let go yet
    """

    __slots__ = ("blocks", "counted", "live")

    def __init__(self, blocks: tuple[list[int], ...], counted: bool) -> None:
        self.blocks = blocks
        self.counted = counted
        self.live = True
