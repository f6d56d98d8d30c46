"""What the kernel asks of the memory that holds the KV of sequences: the protocol, and the values that cross it.

Custody: each reference to a block belongs to exactly one hold. A sequence's table is one; when it ends while a step, a receive
or a send still uses the blocks, its references move to a `Hold`, which whoever needed it lets go. A block is free exactly when
no hold lists it. That a block may be used is never concluded from a count.

Two implementations: `paged.PagedStore`, our own pool for models with one full-attention group, and, in the adapters, the serving
engine's own manager for all others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.seq import Seq


class Hit(NamedTuple):
    """What a look-up found: blocks per group of layers, and the number of tokens whose KV they hold."""

    blocks: tuple[list[int], ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class StoreRules:
    """How releases of the engine differ in what they do with blocks.

    unhashed_first  a freed block without key is handed out first (0.32.0); else freed blocks queue up in order (0.13.0)
    common_prefix   the common prefix of all tables is counted, for cascade attention (0.13.0); else it is always none (0.32.0)
    """

    unhashed_first: bool
    common_prefix: bool
    counts_tries: bool = True
    """Who found no room counts as one more table for the common prefix, until he ends (not in 0.16.0)."""


V0_13_0 = StoreRules(unhashed_first=False, common_prefix=True)
V0_16_0 = StoreRules(unhashed_first=False, common_prefix=True, counts_tries=False)
V0_32_0 = StoreRules(unhashed_first=True, common_prefix=False)


class Listener(Protocol):
    """Is told of changes of the prefix cache, in order. Adapters make the engine's KV events of them."""

    def stored(self, seq: Seq, first: int, last: int) -> None:
        """The blocks at places `first` to `last - 1` of the table got the sequence's keys for these places."""
        ...

    def removed(self, key: Hashable) -> None:
        """A block lost this key."""
        ...

    def cleared(self) -> None:
        """All blocks lost their keys."""
        ...

    def take(self) -> list[Any]:
        """The events since the last time."""
        ...


class Watch(Protocol):
    """Is told how blocks are used. Adapters make the engine's statistics of it."""

    def looked_up(self, seq: Seq, tokens: int) -> None:
        """The cache was asked for this sequence and had `tokens` tokens."""
        ...

    def taken(self, blocks: list[int]) -> None:
        """These blocks were handed out (what they held is lost)."""
        ...

    def shared(self, blocks: list[int]) -> None:
        """These blocks were found in the cache and got another holder."""
        ...

    def lost(self, block: int) -> None:
        """What this block holds is not to be used again."""
        ...

    def reset(self) -> None:
        """The cache was cleared."""
        ...


class BlockStore(Protocol):
    """Memory for the KV of sequences. An operation whose guard is false raises `Refused` and changes nothing."""

    @property
    def block_size(self) -> int:
        """Tokens in a block."""
        ...

    @property
    def size(self) -> int:
        """All blocks, the null block among them."""
        ...

    @property
    def free(self) -> int:
        """Blocks that could be handed out now."""
        ...

    @property
    def usage(self) -> float:
        """The share of the blocks that is held, from 0 to 1."""
        ...

    def lookup(self, seq: Seq) -> Hit:
        """The longest run of the sequence's tokens whose KV is cached, at least one token short of all. Changes nothing."""
        ...

    def grow(
        self,
        seq: Seq,
        tokens: int,
        *,
        hit: Hit | None = None,
        external: int = 0,
        lookahead: int = 0,
        cache: bool = True,
        encoder_tokens: int = 0,
        keep: int = 0,
    ) -> tuple[list[int], ...] | None:
        """Room for `tokens` tokens after what is computed, found (`hit`) and loaded (`external`); gives the blocks it took.

        None when it does not fit with `keep` blocks to spare, and then nothing changed. `lookahead` tokens get room as well,
        but are not counted on. Blocks that are full afterwards get their keys, unless `cache` is false (their KV arrives
        later). `encoder_tokens`: room for a cross-attention cache. Refused when there is nothing to grow for, when a hit comes
        to a sequence that has a table, and when the hit is not in the cache any more.
        """
        ...

    def needs(self, seq: Seq, total: int, hit: Hit | None = None, encoder_tokens: int = 0) -> int:
        """How many free blocks it would take for the sequence to hold `total` tokens, given this hit."""
        ...

    def cache(self, seq: Seq, upto: int) -> None:
        """The full blocks of the first `upto` tokens get their keys. Refused when the table or the keys do not go so far."""
        ...

    def table(self, seq: Seq) -> tuple[list[int], ...]:
        """The sequence's blocks, in order of position; not to be changed by the caller."""
        ...

    def drop(self, seq: Seq) -> None:
        """The table is let go of now."""
        ...

    def trim(self, seq: Seq, counts: tuple[int, ...]) -> None:
        """The last `counts` blocks of the table, per group, are let go of now."""
        ...

    def convert(self, seq: Seq, *, counted: bool = True) -> Hold:
        """The references of the table move to a hold. `counted`: see `Hold`."""
        ...

    def pin(self, seq: Seq, tokens: int) -> Hold:
        """One more reference to the blocks of the first `tokens` tokens. Refused when the table does not go so far."""
        ...

    def let_go(self, hold: Hold) -> None:
        """The references of the hold end. Refused the second time."""
        ...

    def evict(self, blocks: set[int]) -> None:
        """What these blocks hold is not to be found any more; holders keep them. Refused for a number that is no block."""
        ...

    def reset(self) -> bool:
        """Nothing is to be found any more; False, and nothing changed, when a block is held."""
        ...

    def common_prefix(self, seq: Seq) -> list[int]:
        """Per group, how many blocks at the beginning of this table are in all tables that the engine's books list.

        Those are the tables of all unfinished requests that were ever given, or tried to get, blocks since they last lost them,
        and of finished ones that wait for a transfer (`Hold.counted`).
        """
        ...

    def slide(self, seq: Seq) -> None:
        """Blocks that the attention window has left are let go of."""
        ...

    def take_events(self) -> list[Any]:
        """The engine's KV events since the last time."""
        ...
