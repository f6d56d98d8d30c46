"""The canonical form of a driver state, for recognising states already seen.

It covers the scheduler's own simple attributes and those of its requests, the pool, the queues and the truth.
Requests are renamed by arrival and blocks by first occurrence, which is sound because a scheduler compares arrival and
treats block ids as opaque.  Clocks that only count up enter as differences.  Rejected: pickling the scheduler (slow,
and its clocks make every state new); hashing only the snapshot (states that differ in hidden marks would be merged).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from .driver import Driver
from .extension import Blocks

ORIGIN_OF_CLOCK = {
    "current_step": "current_step",
    "sched_step_seq": "processed_step_seq",
    "processed_step_seq": "processed_step_seq",
    "last_sched_seq": "processed_step_seq",
    "next_decode_eligible_step": "current_step",
}
"""Attributes that only grow, and the scheduler's clock that they are measured from."""
LONG_PAST = -1
"""Clocks are compared for before and after: how long ago something was makes no difference."""
NOT_STATE = frozenset({"arrival_time", "request_id", "events", "num_preemptions", "cache_salt"})
Key = int


def state_key(driver: Driver) -> Key:
    """A hash of the canonical form."""
    return hash(_Form(driver).form())


class _Form:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.truth = driver.truth
        owners = sorted((*self.truth.past, *self.truth.lives.values()), key=lambda life: life.order)
        tracked = driver.observer.get("tracked requests")
        alive = [x for x in owners if self.truth.lives[x.rid] is x or tracked.get(x.rid) is x.request]
        self.names: dict[Any, int] = {x.rid: i for i, x in enumerate(alive)}
        self.owners = alive
        self.blocks: dict[int, int] = {}
        scheduler = driver.scheduler
        self.clock = {name: getattr(scheduler, o, 0) for name, o in ORIGIN_OF_CLOCK.items()}

    def block(self, b: int) -> int:
        return self.blocks.setdefault(b, len(self.blocks))

    def ids(self, blocks: Any) -> tuple[int, ...]:
        return tuple(self.block(b) for b in blocks)

    def form(self) -> tuple[Any, ...]:
        observer, truth = self.driver.observer, self.truth
        pool = observer.get("blocks")
        free = self.ids(b.block_id for b in observer.get("free list"))
        lives = tuple(self._life(x) for x in self.owners)
        moving = tuple(
            (
                t.kind,
                self.names.get(t.rid, t.rid),
                t.announced is None,
                self._late(t.announced),
                self.ids(t.blocks),
            )
            for t in truth.transfers
        )
        steps = tuple(
            tuple(
                (self.names.get(rid, rid), n, rid in step.samples, step.drafts.get(rid, 0), rid in step.loads)
                for rid, n in step.tokens.items()
            )
            for step in truth.steps
        )
        out = truth.outbox
        mail = tuple(
            tuple(self.names.get(r, r) for r in sorted(box)) for box in (out.received, out.sent, out.failed)
        )
        content = tuple((self.block(b.block_id), b.ref_cnt, b.block_hash) for b in pool)
        return (
            free,
            lives,
            moving,
            steps,
            mail,
            self.ids(sorted(out.bad_blocks)),
            tuple(sorted(content, key=lambda c: c[0])),
            self._simple(vars(self.driver.scheduler)),
            truth.adds,
            tuple(truth.breakers),
            truth.mishap,
            self._delivered(),
            truth.pause,
            self._extension(),
            self._connector(),
        )

    def _connector(self) -> tuple[Any, ...]:
        """What is plain in a connector of the user's; the driver's own keeps nothing."""
        return (
            self._simple(vars(self.driver.observer.get("connector")))
            if self.driver.scope.connector_class
            else ()
        )

    def _extension(self) -> tuple[Any, ...]:
        """What the family's own part of the environment remembers, by the requests' new names."""
        return tuple(self._named(part) for part in self.driver.extension.state())

    def _named(self, part: Any) -> Any:
        if isinstance(part, Blocks):
            return self.ids(part.ids)
        return tuple(map(self._named, part)) if isinstance(part, tuple) else self.names.get(part, part)

    def _delivered(self) -> tuple[Any, ...]:
        current = {(rid, life.epoch) for rid, life in self.truth.lives.items()}
        return tuple(sorted(self.names[rid] for rid, epoch in self.truth.delivered & current))

    def _late(self, announced: int | None) -> bool:
        """Whether the announcement is later than the oldest step in flight."""
        return bool(self.truth.steps) and announced is not None and announced > self.truth.steps[0].number

    def _life(self, life: Any) -> tuple[Any, ...]:
        rid = life.rid
        current = self.truth.lives[rid] is life
        request = life.request
        return (
            current,
            life.match,
            life.hold,
            life.client_done,
            life.grammar,
            life.closed,
            life.chunks,
            min(2, life.finished_calls),
            min(2, life.handoffs),
            min(2, life.told_new.get(request.num_prompt_tokens, 0)),
            self.ids(self.driver.observer.table(rid)) if self.driver.tracked(rid) is request else (),
            tuple(request.block_hashes),
            request.num_preemptions > 0 if hasattr(request, "num_preemptions") else False,
            self._simple(vars(request)),
        )

    def _simple(self, attributes: dict[str, Any]) -> tuple[Any, ...]:
        out = []
        for name, value in attributes.items():
            read = _READ.get(type(value))
            if read is None:
                if isinstance(value, Enum):
                    out.append(value.value)
            elif read is _plain:
                if name in self.clock:
                    out.append(max(value - self.clock[name], LONG_PAST))
                elif name not in NOT_STATE:
                    out.append(value)
            elif value and name not in NOT_STATE:
                out.append((name, read(self, value)))
        return tuple(out)

    def name(self, item: Any) -> Any:
        """A member of a container: requests and ids by canonical name, other things by their type."""
        rid = getattr(item, "request_id", item)
        if isinstance(rid, str):
            return self.names.get(rid, rid)
        if isinstance(item, int):
            return item
        if isinstance(item, tuple):
            return len(item)
        return type(item).__name__


def _ordered(form: _Form, value: Any) -> tuple[Any, ...]:
    if type(value[0]) is int:  # token ids: prompts and samples are given by their family, length and last one
        return len(value), value[0], value[-1]
    return tuple(form.name(v) for v in value)


def _unordered(form: _Form, value: Any) -> tuple[Any, ...]:
    return tuple(sorted((form.name(v) for v in value), key=repr))


def _plain(form: _Form, value: Any) -> Any:
    return value


_READ: dict[type, Callable[[_Form, Any], Any]] = {
    int: _plain,
    bool: _plain,
    str: _plain,
    type(None): _plain,
    list: _ordered,
    deque: _ordered,
    tuple: _ordered,
    set: _unordered,
    dict: lambda form, value: _unordered(form, value.keys()),
}
