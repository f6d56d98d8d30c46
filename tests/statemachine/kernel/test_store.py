"""The block store under random use: a block is free exactly when no hold lists it, and a refused operation changes nothing."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import V0_13_0, V0_32_0, Hit

SIZE, BLOCK, LONGEST = 9, 2, 16
NAMES = "abcd"
RUNS = [(0,) * LONGEST, (0, 1) * (LONGEST // 2), (0,) * 6 + (1,) * 10]  # shared prefixes of 1 and 6 tokens


def keys_of(tokens: list[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]


def sequence(name: str, tokens: list[int]) -> Seq:
    return Seq(name, None, tokens, [], keys_of(tokens), limit=LONGEST)


def state(store: PagedStore, seqs: dict[str, Seq], holds: list[Hold]) -> Any:
    """All that an operation could change, but which sequences have asked (see `BlockStore.common_prefix`)."""
    prefixes = store.prefixes
    return deepcopy(
        (
            store.pool.refs,
            list(store.pool.queue),
            prefixes.keys,
            prefixes.first,
            {key: list(blocks) for key, blocks in prefixes.copies.items()},
            {name: (seq.table, seq.cached_blocks, seq.computed) for name, seq in seqs.items()},
            [(hold.live, hold.blocks) for hold in holds],
        )
    )


class Use(RuleBasedStateMachine):
    """Sequences look up, grow, lose their tables to holds; everything is counted again after each operation."""

    @initialize(late=st.booleans(), caching=st.sampled_from([True, True, False]), eagle=st.booleans())
    def begin(self, late: bool, caching: bool, eagle: bool) -> None:
        rules = V0_32_0 if late else V0_13_0
        self.store = PagedStore(SIZE, BLOCK, LONGEST, rules, caching=caching, eagle=eagle)
        self.seqs = {name: sequence(name, list(RUNS[0][:4])) for name in NAMES}
        self.holds: list[Hold] = []

    def refused(self, act: Any) -> None:
        before = state(self.store, self.seqs, self.holds)
        with pytest.raises(Refused):
            act()
        assert state(self.store, self.seqs, self.holds) == before

    @rule(name=st.sampled_from(NAMES), run=st.sampled_from(RUNS), n=st.integers(1, LONGEST - 1))
    def another(self, name: str, run: tuple[int, ...], n: int) -> None:
        """A sequence without a table is replaced by another."""
        if not self.seqs[name].table:
            self.seqs[name] = sequence(name, list(run[:n]))

    @rule(
        name=st.sampled_from(NAMES),
        n=st.integers(0, 6),
        external=st.integers(0, 3),
        lookahead=st.integers(0, 2),
        keep=st.integers(0, 3),
        cache=st.booleans(),
        use=st.booleans(),
    )
    def grow(
        self, name: str, n: int, external: int, lookahead: int, keep: int, cache: bool, use: bool
    ) -> None:
        seq, store = self.seqs[name], self.store
        hit = store.lookup(seq) if use and not seq.table else Hit(([],), 0)
        known = len(seq.tokens) - seq.computed - hit.tokens
        n, external = min(n, known), min(external, max(known - n, 0))
        end = seq.computed + hit.tokens + external + n
        before = state(store, self.seqs, self.holds)
        free = store.free
        if not n and not external and not hit.tokens:
            self.refused(lambda: store.grow(seq, n, hit=hit, external=external))
            return
        cost = store.needs(seq, end + lookahead, hit)
        given = store.grow(seq, n, hit=hit, external=external, lookahead=lookahead, cache=cache, keep=keep)
        assert (given is None) == (cost + keep > free)
        if given is None:
            assert state(store, self.seqs, self.holds) == before
            return
        assert store.free == free - cost
        assert seq.table[len(seq.table) - len(given[0]) :] == given[0]
        assert len(seq.table) * BLOCK >= min(end + lookahead, LONGEST)
        seq.computed = end

    @rule(name=st.sampled_from(NAMES), token=st.integers(0, 1))
    def sample(self, name: str, token: int) -> None:
        seq = self.seqs[name]
        if seq.table and len(seq.tokens) < LONGEST:
            seq.tokens.append(token)
            seq.hashes[:] = keys_of(seq.tokens)

    @rule(name=st.sampled_from(NAMES))
    def cache(self, name: str) -> None:
        self.store.cache(self.seqs[name], self.seqs[name].computed)

    @rule(name=st.sampled_from(NAMES))
    def drop(self, name: str) -> None:
        self.store.drop(self.seqs[name])
        self.seqs[name].computed = 0

    @rule(name=st.sampled_from(NAMES), counted=st.booleans())
    def convert(self, name: str, counted: bool) -> None:
        self.holds.append(self.store.convert(self.seqs[name], counted=counted))
        self.seqs[name].computed = 0

    @rule(name=st.sampled_from(NAMES), tokens=st.integers(0, LONGEST))
    def pin(self, name: str, tokens: int) -> None:
        seq = self.seqs[name]
        if 0 < tokens <= len(seq.table) * BLOCK:
            self.holds.append(self.store.pin(seq, tokens))
        else:
            self.refused(lambda: self.store.pin(seq, tokens))

    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        if self.holds:
            hold = self.holds.pop(data.draw(st.integers(0, len(self.holds) - 1)))
            self.store.let_go(hold)
            self.refused(lambda: self.store.let_go(hold))

    @rule(blocks=st.sets(st.integers(0, SIZE - 1), max_size=3), foreign=st.sampled_from([None, -1, SIZE]))
    def evict(self, blocks: set[int], foreign: int | None) -> None:
        if foreign is not None:
            self.refused(lambda: self.store.evict(blocks | {foreign}))
        else:
            refs = list(self.store.pool.refs)
            self.store.evict(blocks)
            assert self.store.pool.refs == refs
            assert not any(self.store.prefixes.keys[block] for block in blocks)

    @rule()
    def reset(self) -> None:
        before = state(self.store, self.seqs, self.holds)
        held = any(self.store.pool.refs)
        assert self.store.reset() == (not held)
        if held:
            assert state(self.store, self.seqs, self.holds) == before
        else:
            assert not self.store.prefixes.first

    @rule(name=st.sampled_from(NAMES))
    def misuse(self, name: str) -> None:
        """Wrong calls of the scheduler are refused as well."""
        seq = self.seqs[name]
        self.refused(lambda: self.store.grow(seq, 0))
        if self.store.caching and seq.cached_blocks < len(seq.hashes):
            self.refused(lambda: self.store.cache(seq, (len(seq.hashes) + 1) * BLOCK))
        if seq.table:
            self.refused(lambda: self.store.grow(seq, 1, hit=Hit((seq.table[:1],), BLOCK)))
        elif seq.hashes and seq.hashes[0] not in self.store.prefixes.first:
            self.refused(lambda: self.store.grow(seq, 1, hit=Hit(([1],), BLOCK)))

    @invariant()
    def a_block_is_free_iff_no_hold_lists_it(self) -> None:
        if not hasattr(self, "store"):
            return
        pool = self.store.pool
        lists = [seq.table for seq in self.seqs.values()] + [hold.blocks[0] for hold in self.holds]
        held = Counter(block for blocks in lists for block in blocks)
        assert pool.refs == [held[block] for block in range(SIZE)]
        assert set(pool.queue) == {block for block in range(1, SIZE) if not held[block]}
        assert self.store.usage == pytest.approx(len(held) / (SIZE - 1))
        assert 0 not in held

    @invariant()
    def a_key_finds_exactly_the_blocks_that_have_it(self) -> None:
        if not hasattr(self, "store"):
            return
        prefixes = self.store.prefixes
        blocks: dict[Any, set[int]] = {}
        for block, key in enumerate(prefixes.keys):
            if key is not None:
                blocks.setdefault(key, set()).add(block)
        assert {key: {first} for key, first in prefixes.first.items() if key not in prefixes.copies} == {
            key: found for key, found in blocks.items() if len(found) == 1
        }
        assert {key: set(found) for key, found in prefixes.copies.items()} == {
            key: found for key, found in blocks.items() if len(found) > 1
        }
        assert all(next(iter(found)) == prefixes.first[key] for key, found in prefixes.copies.items())
        assert self.store.caching or not blocks

    @invariant()
    def a_table_holds_what_its_keys_say(self) -> None:
        if not hasattr(self, "store"):
            return
        for seq in self.seqs.values():
            assert seq.cached_blocks <= len(seq.table)
            for place, block in enumerate(seq.table[: seq.cached_blocks]):
                assert self.store.prefixes.keys[block] in (None, seq.hashes[place])


TestUse = Use.TestCase
TestUse.settings = settings(max_examples=150, stateful_step_count=40)


def test_a_store_needs_the_null_block() -> None:
    with pytest.raises(ValueError, match="null block"):
        PagedStore(0, BLOCK, LONGEST, V0_13_0)


def test_an_empty_store_is_unused() -> None:
    store = PagedStore(1, BLOCK, LONGEST, V0_13_0)
    assert (store.usage, store.free, store.reset()) == (0.0, 0, True)
    assert store.grow(sequence("a", [0]), 1) is None


def test_holds_of_steps_do_not_count_as_tables() -> None:
    """Counted are the tables that the engine's books list: of a request that tried and failed, but not of a step."""
    store = PagedStore(SIZE, BLOCK, LONGEST, V0_13_0)
    a, b, c = (sequence(name, [0] * 5) for name in "abc")
    store.grow(a, 5)
    assert store.common_prefix(a) == [3]
    store.grow(b, 1, hit=store.lookup(b))
    assert store.common_prefix(a) == [2]
    step = store.convert(b, counted=False)
    assert store.common_prefix(a) == [3]
    store.let_go(step)
    assert store.grow(c, 5, keep=SIZE) is None
    assert store.common_prefix(a) == [0]
    store.drop(c)
    send = store.convert(c, counted=True)
    assert store.common_prefix(a) == [0]
    store.let_go(send)
    assert store.common_prefix(a) == [3]
