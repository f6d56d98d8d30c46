"""A frozen observation of a scheduler, in words that no vLLM release owns.

Taken after each call, through the correspondence table; flights come from the driver's truth, never from the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .correspondence import readers
from .truth import Truth

FINISHED = "FINISHED"


@dataclass(frozen=True)
class RequestView:
    """One request object as the scheduler holds it."""

    rid: str
    epoch: int
    status: str
    queues: tuple[str, ...]
    tracked: bool
    table: tuple[int, ...]
    computed: int
    known: int
    placeholders: int
    drafts: int

    @property
    def finished(self) -> bool:
        return self.status.startswith(FINISHED)


@dataclass(frozen=True)
class Flight:
    """A transfer or a step with the blocks it touches."""

    kind: str
    rid: str
    epoch: int
    blocks: tuple[int, ...]
    announced: bool = True


@dataclass(frozen=True)
class Encoder:
    """The encoder cache: capacity, slots left, entries, and who needs each."""

    capacity: int
    free: int
    entries: tuple[str, ...]
    users: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Snapshot:
    """Everything observed after one call."""

    requests: tuple[RequestView, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    parked: tuple[str, ...]
    free: tuple[int, ...]
    free_count: int
    references: tuple[int, ...]
    cached: frozenset[int]
    deferred: tuple[int, ...]
    flights: tuple[Flight, ...]
    steps: int
    notices: frozenset[str]
    awake: bool
    unfinished: bool
    encoder: Encoder | None
    apart: tuple[int, ...] = ()
    """Blocks that a transfer holds besides the tables (a deferred free of no step)."""

    def request(self, rid: str) -> RequestView | None:
        """The tracked request of that id."""
        return next((r for r in self.requests if r.rid == rid and r.tracked), None)


class Observer:
    """Reads snapshots from one scheduler; the ways to read are chosen once.

    Raises MissingSeam when a required fact cannot be observed.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._s = readers("scheduler", scheduler)
        self._r: dict[str, Callable[[Any], Any] | None] = {}
        null = self._need("null block")(scheduler)
        self.null: int = null.block_id

    def _need(self, fact: str) -> Callable[[Any], Any]:
        found = self._s[fact]
        assert found is not None
        return found

    def get(self, fact: str) -> Any:
        """The raw value of a scheduler fact; None when this release has no such thing."""
        way = self._s[fact]
        return None if way is None else way(self.scheduler)

    def of(self, request: Any, fact: str, default: Any = 0) -> Any:
        """The raw value of a request fact."""
        if not self._r:
            self._r = readers("request", request)
        way = self._r[fact]
        return default if way is None else way(request)

    def table(self, rid: str) -> tuple[int, ...]:
        """The block ids in the table of `rid`, all groups, without the null block."""
        groups = self.get("block table")(rid)
        return tuple(b for group in groups for b in group if b != self.null)

    def queues(self) -> dict[str, list[Any]]:
        """The request objects of each queue, in order."""
        out = {"running": list(self.get("running queue")), "waiting": list(self.get("waiting queue"))}
        out["waiting (2)"] = list(self.get("second waiting queue") or ())
        return out

    def view(self, request: Any, epoch: int, queues: dict[str, list[Any]], tracked: bool) -> RequestView:
        """One request."""
        status = self.of(request, "status")
        return RequestView(
            rid=request.request_id,
            epoch=epoch,
            status=getattr(status, "name", str(status)),
            queues=tuple(name for name, members in queues.items() for m in members if m is request),
            tracked=tracked,
            table=self.table(request.request_id) if tracked else (),
            computed=self.of(request, "computed tokens"),
            known=self.of(request, "known tokens"),
            placeholders=self.of(request, "output placeholders"),
            drafts=len(self.of(request, "draft tokens", ())),
        )

    def snapshot(self, truth: Truth) -> Snapshot:
        """The observation now."""
        queues = self.queues()
        tracked: dict[str, Any] = self.get("tracked requests")
        seen = {id(r): r for r in tracked.values()}
        for members in queues.values():
            seen.update((id(r), r) for r in members)
        epochs = {id(life.request): life.epoch for life in (*truth.past, *truth.lives.values())}
        views = tuple(
            self.view(r, epochs.get(i, -1), queues, tracked.get(r.request_id) is r) for i, r in seen.items()
        )
        blocks = self.get("blocks")
        return Snapshot(
            requests=views,
            running=tuple(r.request_id for r in queues["running"]),
            waiting=tuple(r.request_id for r in queues["waiting"]),
            parked=tuple(r.request_id for r in queues["waiting (2)"]),
            free=tuple(b.block_id for b in self.get("free list")),
            free_count=self.get("free counter"),
            references=tuple(b.ref_cnt for b in blocks),
            cached=frozenset(b.block_id for b in blocks if b.block_hash is not None),
            deferred=self._deferred(True),
            apart=self._deferred(False),
            flights=_flights(truth),
            steps=len(truth.steps),
            notices=frozenset(self.get("finished notice")),
            awake=bool(self.get("engine has requests")()),
            unfinished=bool(self.get("engine has unfinished requests")()),
            encoder=self._encoder(),
        )

    def _deferred(self, of_a_step: bool) -> tuple[int, ...]:
        """Blocks that wait to be free: for a step, or for a transfer that holds them besides."""
        entries = self.get("deferred frees") or ()
        return tuple(
            b.block_id for entry in entries if (entry[0] is not None) is of_a_step for b in entry[-1]
        )

    def _encoder(self) -> Encoder | None:
        manager = self.get("encoder cache")
        if manager is None or not getattr(manager, "cache_size", 0):
            return None
        held = getattr(manager, "cached", None) or {}
        return Encoder(
            manager.cache_size,
            manager.num_free_slots,
            tuple(held),
            tuple((e, tuple(u)) for e, u in held.items()),
        )


def _flights(truth: Truth) -> tuple[Flight, ...]:
    moving = [Flight(t.kind, t.rid, t.epoch, t.blocks, t.announced is not None) for t in truth.transfers]
    for step in truth.steps:
        moving += [Flight("step", rid, step.tags[rid][0], step.blocks[rid]) for rid in step.tokens]
    return tuple(moving)
