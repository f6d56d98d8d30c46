"""Our block store and the installed vLLM's KV-cache manager under the same random use: equal blocks, queue, hits and events."""

from __future__ import annotations

import hashlib
import importlib
import random
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm_lifecycle.adapters.vllm.config import fitting
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import V0_13_0, V0_32_0, Hit

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

SIZE, BLOCK, LONGEST = 24, 4, 48
NAMES = [f"r{n}" for n in range(6)]


def keys_of(tokens: list[int]) -> list[bytes]:
    return [hashlib.sha256(bytes(tokens[:end])).digest() for end in range(BLOCK, len(tokens) + 1, BLOCK)]


class Events:
    """What happened to the prefix cache, as plain values."""

    def __init__(self) -> None:
        self.list: list[Any] = []

    def stored(self, seq: Seq, first: int, last: int) -> None:
        parent = seq.hashes[first - 1] if first else None
        self.list.append(("stored", seq.hashes[first:last], parent, seq.tokens[first * BLOCK : last * BLOCK]))

    def removed(self, key: Hashable) -> None:
        self.list.append(("removed", key))

    def cleared(self) -> None:
        self.list.append(("cleared",))

    def take(self) -> list[Any]:
        taken, self.list = self.list, []
        return taken


class Theirs:
    """vLLM's manager, with the names of `BlockStore`."""

    def __init__(self, caching: bool, eagle: bool) -> None:
        interface = importlib.import_module("vllm.v1.kv_cache_interface")
        manager = importlib.import_module("vllm.v1.core.kv_cache_manager")
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        torch = importlib.import_module("torch")
        self.status = importlib.import_module("vllm.v1.request").RequestStatus
        self.external = utils.maybe_convert_block_hash
        spec = fitting(
            interface.FullAttentionSpec,
            block_size=BLOCK,
            num_kv_heads=1,
            head_size=1,
            dtype=torch.float32,
            use_mla=False,
        )
        config = interface.KVCacheConfig(
            num_blocks=SIZE,
            kv_cache_tensors=[],
            kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)],
        )
        self.manager = fitting(
            manager.KVCacheManager,
            kv_cache_config=config,
            max_model_len=LONGEST,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
            enable_caching=caching,
            use_eagle=eagle,
            enable_kv_cache_events=True,
        )
        self.late = hasattr(self.manager, "pop_blocks_for_free")

    def request(self, seq: Seq) -> Any:
        """What the manager reads of a request."""
        tokens = seq.tokens
        return SimpleNamespace(
            request_id=seq.id,
            num_tokens=len(tokens),
            num_prompt_tokens=seq.prompt,
            num_computed_tokens=seq.computed,
            all_token_ids=tokens,
            block_hashes=seq.hashes,
            skip_reading_prefix_cache=seq.skip_cache,
            num_preemptions=0,
            num_in_flight_tokens=0,
            shared_prefix_boundary=0,
            status=self.status.WAITING,
            mm_features=[],
            lora_request=None,
            cache_salt=None,
            prompt_embeds=None,
            session_id=None,
        )

    def grow(self, seq: Seq, tokens: int, hit: Any, **more: Any) -> list[int] | None:
        blocks, found = hit
        keep = more.pop("keep")
        names = {
            "num_lookahead_tokens": more["lookahead"],
            "delay_cache_blocks": not more["cache"],
            "num_new_computed_tokens": found,
            "new_computed_blocks": blocks if found else None,
        }
        if self.late:
            names |= {"num_external_computed_tokens": more["external"], "reserved_blocks": keep}
        else:
            tokens += more["external"]
        before = self.table(seq)
        answer = self.manager.allocate_slots(self.request(seq), tokens, **names)
        return None if answer is None else self.table(seq)[len(before) + found // BLOCK :]

    def table(self, seq: Seq) -> list[int]:
        return list(self.manager.get_block_ids(seq.id)[0])

    def queue(self) -> list[int]:
        return [block.block_id for block in self.manager.block_pool.free_block_queue.get_all_free_blocks()]

    def events(self) -> list[Any]:
        def plain(event: Any) -> Any:
            match type(event).__name__:
                case "BlockStored":
                    return ("stored", event.block_hashes, event.parent_block_hash, list(event.token_ids))
                case "BlockRemoved":
                    return ("removed", event.block_hashes[0])
                case _:
                    return ("cleared",)

        return [plain(event) for event in self.manager.take_events()]

    def of_ours(self, events: list[Any]) -> list[Any]:
        """Our events with keys as vLLM shows them to the outside."""
        show = self.external

        def shown(event: Any) -> Any:
            match event:
                case ("stored", keys, parent, tokens):
                    return ("stored", [show(key) for key in keys], parent and show(parent), tokens)
                case ("removed", key):
                    return ("removed", show(key))
            return event

        return [shown(event) for event in events]


class Pair:
    """Both stores and the sequences that they share."""

    def __init__(self, seed: int, caching: bool, eagle: bool) -> None:
        self.dice = random.Random(seed)
        self.theirs = Theirs(caching, eagle)
        rules = V0_32_0 if self.theirs.late else V0_13_0
        self.ours = PagedStore(SIZE, BLOCK, LONGEST, rules, caching=caching, eagle=eagle, listener=Events())
        self.seqs: dict[str, Seq] = {}
        self.done: dict[str, int] = dict.fromkeys(
            ("grown", "refused", "hit", "loaded", "evicted", "reset", "held", "common", "copies"), 0
        )

    def fresh(self, name: str) -> Seq:
        start = [self.dice.randrange(2) for _ in range(2)] * (LONGEST // 2)
        tokens = start[: self.dice.randrange(1, LONGEST - 8)]
        return Seq(name, None, tokens, [], keys_of(tokens), limit=8, skip_cache=self.dice.random() < 0.1)

    def step(self) -> None:
        dice = self.dice
        name = dice.choice(NAMES)
        seq = self.seqs.get(name)
        if seq is None:
            seq = self.seqs[name] = self.fresh(name)
        act = dice.choices(
            (self.grow, self.drop, self.end, self.evict, self.reset, self.common), (20, 2, 2, 1, 1, 3)
        )[0]
        act(seq)
        self.compare(act.__name__)

    def grow(self, seq: Seq) -> None:
        dice, ours, theirs = self.dice, self.ours, self.theirs
        theirs_hit: Any = (None, 0)
        hit: Hit | None = None
        external = 0
        if not seq.table:
            hit = ours.lookup(seq)
            theirs_hit = theirs.manager.get_computed_blocks(theirs.request(seq))[:2]
            assert (list(theirs_hit[0].get_block_ids()[0]), theirs_hit[1]) == (hit.blocks[0], hit.tokens)
            self.done["hit"] += hit.tokens > 0
            if dice.random() < 0.3:
                external = dice.randrange(len(seq.tokens) - hit.tokens)
        elif seq.computed == len(seq.tokens):
            if len(seq.tokens) == LONGEST:
                return
            seq.tokens.append(dice.randrange(2))
            seq.hashes[:] = keys_of(seq.tokens)
        lacking = len(seq.tokens) - seq.computed - external - (hit.tokens if hit else 0)
        tokens = dice.randint(0 if external else 1, lacking)
        drafts = dice.randrange(3) if dice.random() < 0.2 else 0
        more = {
            "external": external,
            "lookahead": dice.choice((0, 0, 0, 2)),
            "cache": tokens > 0,
            "keep": dice.choice((0, 0, 3)) if theirs.late else 0,
        }
        answer = ours.grow(seq, tokens + drafts, hit=hit, **more)  # type: ignore[arg-type]
        seq_table, seq.table = seq.table, []
        expected = theirs.grow(seq, tokens + drafts, theirs_hit, **more)
        seq.table = seq_table
        assert (None if answer is None else answer[0]) == expected
        if answer is None:
            self.done["refused"] += 1
            return
        self.done["grown"] += 1
        seq.computed += tokens + external + (hit.tokens if hit else 0)
        if not tokens and not drafts:
            self.done["loaded"] += 1
            ours.cache(seq, seq.computed)
            if ours.caching:
                theirs.manager.cache_blocks(theirs.request(seq), seq.computed)

    def drop(self, seq: Seq) -> None:
        self.ours.drop(seq)
        self.theirs.manager.free(self.theirs.request(seq))
        seq.computed = 0

    def end(self, seq: Seq) -> None:
        """The table ends, by way of a hold; the id is free for another sequence."""
        self.done["held"] += 1
        self.ours.let_go(self.ours.convert(seq))
        self.theirs.manager.free(self.theirs.request(seq))
        del self.seqs[seq.id]

    def evict(self, seq: Seq) -> None:
        self.done["evicted"] += 1
        blocks = {self.dice.randrange(1, SIZE) for _ in range(2)} | set(seq.table[-1:])
        if (
            not self.theirs.late
        ):  # 0.13.0 dies when a table grows past a block that was evicted while it was held
            blocks = {block for block in blocks if not self.ours.pool.refs[block]}
        self.ours.evict(blocks)
        self.theirs.manager.evict_blocks(blocks)

    def reset(self, seq: Seq) -> None:
        if self.dice.random() < 0.5:
            for other in self.seqs.values():
                self.drop(other)
        answer = self.ours.reset()
        assert answer == self.theirs.manager.reset_prefix_cache()
        self.done["reset"] += answer

    def common(self, seq: Seq) -> None:
        if seq.table:
            count = self.ours.common_prefix(seq)
            assert count == self.theirs.manager.get_num_common_prefix_blocks(seq.id)
            self.done["common"] += count[0] > 0

    def compare(self, act: str) -> None:
        ours, theirs = self.ours, self.theirs
        self.done["copies"] += bool(ours.prefixes.copies)
        assert list(ours.pool.queue) == theirs.queue(), act
        assert ours.free == theirs.manager.block_pool.get_num_free_blocks()
        assert ours.usage == theirs.manager.usage
        for seq in self.seqs.values():
            assert seq.table == theirs.table(seq), act
        assert theirs.of_ours(ours.take_events()) == theirs.events(), act


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("eagle", [False, True])
def test_equal_decisions(caching: bool, eagle: bool) -> None:
    done: dict[str, int] = {}
    for seed in range(20):
        pair = Pair(seed, caching, eagle)
        for _ in range(250):
            pair.step()
        done = {what: done.get(what, 0) + times for what, times in pair.done.items()}
    rare = {"hit", "copies"} if not caching else set()
    if not caching or pair.theirs.late:
        rare.add("common")
    assert {what for what, times in done.items() if not times} == rare, done


def test_the_common_prefix_counts_all_tables() -> None:
    pair = Pair(0, True, False)
    a, b, c = (Seq(name, None, [0] * 9, [], keys_of([0] * 9), limit=8) for name in "abc")
    for seq in (a, b, c):
        pair.seqs = {**pair.seqs, seq.id: seq}
        pair.grow(seq)
        pair.common(a)
    pair.drop(b)
    pair.common(a)
