"""Block store of our own, for models whose layers all use full attention with one block size.

Decides exactly as vLLM's KV-cache manager does: which blocks a look-up finds, which a sequence gets, in which order freed ones
are handed out again, and when a block gets or loses its key. In a decoding step a sequence inside a block costs one comparison.

Context parallelism only makes the block larger. Sliding windows, cross attention, several groups, drafters that write again
below the computed tokens, and whoever wants the engine's own pool object: the engine's own manager behind the same protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.pool import Pool
from vllm_lifecycle.statemachine.kernel.prefix import Prefixes
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.store import Hit, Listener, StoreRules, Watch

if TYPE_CHECKING:
    from vllm_lifecycle.statemachine.kernel.seq import Seq


class PagedStore:
    """`size` blocks of `block_size` tokens, for sequences of at most `longest` tokens.

    caching     full blocks can be found again; without it nothing gets a key
    eagle       a drafter needs the last found block computed again, so look-ups leave it out
    """

    def __init__(
        self,
        size: int,
        block_size: int,
        longest: int,
        rules: StoreRules,
        *,
        caching: bool = True,
        eagle: bool = False,
        listener: Listener | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.block_size = block_size
        self.longest = longest
        self.rules = rules
        self.caching = caching
        self.eagle = eagle
        self.listener = listener
        self.watch = watch
        self.pool = Pool(size)
        self.prefixes = Prefixes(size)
        self._listed: set[int] = set()  # epochs of sequences with a table, or that tried to get one
        self._held = 0  # counted holds
        self._uncounted: set[Hold] = set()

    @property
    def size(self) -> int:
        """All blocks, the null block among them."""
        return self.pool.size

    @property
    def free(self) -> int:
        """Blocks that could be handed out now."""
        return self.pool.free

    @property
    def usage(self) -> float:
        """The share of the blocks that is held, from 0 to 1."""
        return self.pool.usage

    def lookup(self, seq: Seq) -> Hit:
        """The longest cached run of the sequence's tokens, at least one token short of all."""
        if not self.caching or seq.skip_cache:
            return Hit(([],), 0)
        found = self.prefixes.longest(seq.hashes, (len(seq.tokens) - 1) // self.block_size)
        if self.eagle and found:
            found.pop()
        tokens = len(found) * self.block_size
        if self.watch is not None:
            self.watch.looked_up(seq, tokens)
        return Hit((found,), tokens)

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
        """See `BlockStore.grow`."""
        table, size = seq.table, self.block_size
        end = seq.computed + external + tokens
        found: Sequence[int] = ()
        if hit is not None and hit.tokens:
            found = self._valid(seq, hit)
            end += hit.tokens
        elif not tokens and not external:
            raise Refused("grow", f"{seq} has no token to make room for")
        cached = len(found) or seq.cached_blocks
        full = min(end, len(seq.tokens), self.longest) // size if cache and self.caching else 0
        if full > cached and full > len(seq.hashes):
            raise Refused("grow", f"{seq} has keys for {len(seq.hashes)} blocks, and {full} are full")

        if not table and self.rules.counts_tries:
            self._listed.add(seq.epoch)
        need = max(-(-min(end + lookahead, self.longest) // size) - len(table) - len(found), 0)
        pool = self.pool
        spare = pool.free - need - keep
        if len(found) > spare and pool.idle(found) > spare:
            return None
        self._listed.add(seq.epoch)
        if found:
            pool.share(found)
            table += found
            seq.cached_blocks = cached
            if self.watch is not None:
                self.watch.shared(list(found))
        fresh = self.take(need) if need else []
        table += fresh
        if full > cached:
            self.store({seq: full})
        return (fresh,)

    def needs(self, seq: Seq, total: int, hit: Hit | None = None, encoder_tokens: int = 0) -> int:
        """Free blocks it would take to hold `total` tokens, given this hit."""
        found = hit.blocks[0] if hit is not None else ()
        blocks = -(-min(total, self.longest) // self.block_size)
        return max(blocks - len(seq.table) - len(found), 0) + self.pool.idle(found)

    def cache(self, seq: Seq, upto: int) -> None:
        """The full blocks of the first `upto` tokens get their keys."""
        full = min(upto, self.longest) // self.block_size
        if not self.caching or full <= seq.cached_blocks:
            return
        if full > len(seq.table) or full > len(seq.hashes):
            raise Refused(
                "cache", f"{seq} has {len(seq.table)} blocks and {len(seq.hashes)} keys, not {full}"
            )
        self.store({seq: full})

    def table(self, seq: Seq) -> tuple[list[int], ...]:
        """The sequence's blocks, in order of position."""
        return (seq.table,)

    def drop(self, seq: Seq) -> None:
        """The table is let go of now."""
        self._give_back(self._unlist(seq))

    def trim(self, seq: Seq, counts: tuple[int, ...]) -> None:
        """The last blocks of the table are let go of now."""
        keep = len(seq.table) - counts[0]
        if keep < 0:
            raise Refused("trim", f"{seq} has {len(seq.table)} blocks, not {counts[0]}")
        rest = seq.table[keep:]
        del seq.table[keep:]
        seq.cached_blocks = min(seq.cached_blocks, keep)
        self._give_back(rest)

    def convert(self, seq: Seq, *, counted: bool = True) -> Hold:
        """The references of the table move to a hold."""
        hold = Hold((self._unlist(seq),), counted)
        self._count(hold)
        return hold

    def pin(self, seq: Seq, tokens: int) -> Hold:
        """One more reference to the blocks of the first `tokens` tokens."""
        blocks = -(-tokens // self.block_size)
        if not 0 < blocks <= len(seq.table):
            raise Refused("pin", f"{seq} has {len(seq.table)} blocks, not {blocks}")
        hold = Hold((seq.table[:blocks],), counted=False)
        self.pool.share(hold.blocks[0])
        self._count(hold)
        return hold

    def let_go(self, hold: Hold) -> None:
        """The references of the hold end."""
        if not hold.live:
            raise Refused("let_go", "this hold was let go of before")
        hold.live = False
        if hold.counted:
            self._held -= 1
        else:
            self._uncounted.remove(hold)
        self._give_back(hold.blocks[0])

    def evict(self, blocks: set[int]) -> None:
        """What these blocks hold is not to be found any more; holders keep them."""
        for block in blocks:
            if not 0 <= block < self.pool.size:
                raise Refused("evict", f"there is no block {block}, only 0 to {self.pool.size - 1}")
        if self.watch is not None:
            for block in blocks:
                self.watch.lost(block)
        self._forget(blocks)

    def reset(self) -> bool:
        """Nothing is to be found any more; False, and nothing changed, when a block is held."""
        if self.pool.free != self.pool.size - 1:
            return False
        self.prefixes.clear()
        if self.watch is not None:
            self.watch.reset()
        if self.listener is not None:
            self.listener.cleared()
        return True

    def common_prefix(self, seq: Seq) -> list[int]:
        """How many blocks at the beginning of this table are in all tables that are listed."""
        if not self.rules.common_prefix or not self.caching:
            return [0]
        refs, tables = self.pool.refs, len(self._listed) + self._held
        others = [block for hold in self._uncounted for block in hold.blocks[0]]
        n = 0
        for block in seq.table:
            if refs[block] - (others.count(block) if others else 0) != tables:
                break
            n += 1
        return [n]

    def slide(self, seq: Seq) -> None:
        """Full attention looks at all blocks."""

    def take_events(self) -> list[Any]:
        """What the listener has gathered."""
        return self.listener.take() if self.listener is not None else []

    # What the columns use as well, for many sequences at once.

    def take(self, n: int) -> list[int]:
        """The next `n` free blocks, which lose their keys; the caller has seen that there are so many."""
        fresh = self.pool.take(n)
        if self.watch is not None:
            self.watch.taken(fresh)
        self._forget(fresh)
        return fresh

    def extend(self, seqs: Sequence[Seq]) -> list[int]:
        """One more block for each of these tables, in order; the caller has seen that there are so many."""
        fresh = self.take(len(seqs)) if seqs else []
        for seq, block in zip(seqs, fresh, strict=True):
            seq.table.append(block)
        return fresh

    def store(self, full: Mapping[Seq, int]) -> None:
        """So many first blocks of each table, more than before, have keys; the caller has seen that there are so many."""
        blocks: list[int] = []
        keys: list[Hashable] = []
        for seq, last in full.items():
            first = seq.cached_blocks
            blocks += seq.table[first:last]
            keys += seq.hashes[first:last]
            seq.cached_blocks = last
            if self.listener is not None:
                self.listener.stored(seq, first, last)
        self.prefixes.add(blocks, keys)

    # Within.

    def _valid(self, seq: Seq, hit: Hit) -> list[int]:
        """The blocks of a hit that may be used."""
        found = hit.blocks[0]
        if seq.table:
            raise Refused("grow", f"{seq} has a table, so it cannot use what a look-up found")
        if list(map(self.prefixes.keys.__getitem__, found)) != list(seq.hashes[: len(found)]):
            raise Refused("grow", f"what was found for {seq} is not in the cache any more")
        return found

    def _forget(self, blocks: Iterable[int]) -> None:
        keys = self.prefixes.forget(blocks)
        if self.listener is not None:
            for key in keys:
                self.listener.removed(key)

    def _unlist(self, seq: Seq) -> list[int]:
        """Take the table from the sequence."""
        table = seq.table
        seq.table = []
        seq.cached_blocks = 0
        self._listed.discard(seq.epoch)
        return table

    def _count(self, hold: Hold) -> None:
        if hold.counted:
            self._held += 1
        else:
            self._uncounted.add(hold)

    def _give_back(self, blocks: Sequence[int]) -> None:
        freed = self.pool.give_back(blocks)
        if self.rules.unhashed_first:
            keys = self.prefixes.keys
            bare = [block for block in freed if keys[block] is None]
            if bare:
                self.pool.prepend(bare)
                freed = [block for block in freed if keys[block] is not None]
        self.pool.append(freed)
