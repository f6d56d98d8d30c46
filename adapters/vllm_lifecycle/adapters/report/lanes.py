"""The layout of a custody picture: lanes of bars over the calls, as a table that a template can write out row by row.

A request has one row, coloured by status. A block has as many rows as it had holders at one time, so that "free" beside
"receive r0" is seen at once; neighbouring blocks with the same fate share a lane. Bars are cut at every change and never
overlap. Colours are only names of kinds here. Rejected: one cell per moment and block (sixty steps of six blocks are 360 words
to read), SVG (its labels do not wrap, stick, select or speak).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_lifecycle.adapters.report.custody import Frame, Picture, unique

FREE, CACHED, NOBODY = "free", "cached", "nobody"
KINDS = {
    "waiting": ("WAITING",),
    "running": ("RUNNING",),
    "preempted": ("PREEMPTED",),
    "custody": ("WAITING_FOR_TRANSFER_FREE",),
    "blocked": ("WAITING_FOR",),
    "finished": ("FINISHED",),
}
"""Kind of a status -> how such statuses begin; the first that fits a status exactly or as a prefix counts."""
SHORTER = ("WAITING_FOR_", "FINISHED_")


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that was so from one moment on for a while; `start` counts moments from 0."""

    start: int
    length: int
    kind: str
    text: str
    short: str
    """The text where there is little room."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One request, step or group of blocks; each row is a list of bars in order."""

    name: str
    rows: tuple[tuple[Bar, ...], ...]
    subject: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Lanes of one kind."""

    title: str
    lanes: tuple[Lane, ...]


Fact = tuple[str, str]
"""Kind and text of something that is so at one moment."""


def groups(picture: Picture) -> tuple[Group, ...]:
    """All lanes of a picture; groups without lanes are left out."""
    frames = observed(picture)
    found = (
        Group("requests", tuple(_requests(frames, picture.subjects))),
        Group("blocks", tuple(_blocks(frames, picture.subjects))),
        Group("model steps", tuple(_steps(frames))),
    )
    return tuple(g for g in found if g.lanes)


def observed(picture: Picture) -> list[Frame]:
    """A frame for each moment; one that could not be observed shows what was there before."""
    frames: list[Frame] = []
    for moment in picture.moments:
        frames.append(moment.frame or (frames[-1] if frames else Frame()))
    return frames


def status_kind(status: str) -> str:
    """The kind of a request status, for its colour."""
    for kind, begins in KINDS.items():
        if status in begins or (kind in ("blocked", "finished") and status.startswith(begins)):
            return kind
    return "other"


def legend(picture: Picture) -> tuple[tuple[str, str], ...]:
    """(kind, words) of every colour in the picture, in order of first use."""
    kinds = unique(bar.kind for g in groups(picture) for lane in g.lanes for row in lane.rows for bar in row)
    return tuple((kind, LEGEND[kind]) for kind in LEGEND if kind in kinds)


LEGEND = {
    "waiting": "request waits",
    "blocked": "request waits for something",
    "running": "request runs",
    "preempted": "request was preempted",
    "finished": "request is over",
    "custody": "request is over, custody remains",
    "other": "request in another state",
    "table": "block in a request's table",
    "receive": "block is written from outside",
    "send": "block is read from outside",
    "handoff": "block is handed to a later stage",
    "step": "block is used by a step in flight",
    "deferred": "block is to be freed later",
    "free": "block is in the free pool",
    "cached": "free, and found by its hash",
    "nobody": "block is not free and has no holder",
    "flight": "model step",
}


def _requests(frames: Sequence[Frame], subjects: frozenset[str]) -> Iterable[Lane]:
    for name in unique(r.name for f in frames for r in f.requests):
        facts = [[(status_kind(r.status), r.status) for r in f.requests if r.name == name] for f in frames]
        yield Lane(name, _rows(facts), name in subjects)


def _steps(frames: Sequence[Frame]) -> Iterable[Lane]:
    facts = [[("flight", f"{s.name}: {s.state}") for s in f.steps] for f in frames]
    if any(facts):
        yield Lane("in flight", _rows(facts))


def _blocks(frames: Sequence[Frame], subjects: frozenset[str]) -> Iterable[Lane]:
    names = unique(b for f in frames for b in f.blocks)
    fates = {name: [fate(frame, name) for frame in frames] for name in names}
    for members in alike(names, lambda name: fates[name], subjects):
        yield Lane(named(members), _rows(fates[members[0]]), bool(subjects & {*members}))


def alike(blocks: Iterable[str], fates: Callable[[str], object], subjects: frozenset[str]) -> list[list[str]]:
    """Neighbouring blocks with the same fate together; those that the violation is about stay alone."""
    together: list[list[str]] = []
    for block in blocks:
        last = together[-1][-1] if together else ""
        if last and fates(last) == fates(block) and not {last, block} & subjects:
            together[-1].append(block)
        else:
            together.append([block])
    return together


def named(blocks: Sequence[str]) -> str:
    """One block, or several neighbouring ones, as a lane is called."""
    if len(blocks) == 1:
        return f"block {blocks[0]}"
    return f"blocks {blocks[0]}\u2013{blocks[-1]}"


def fate(frame: Frame, block: str) -> list[Fact]:
    """What is so of a block: its holders, and whether it is free."""
    facts: list[Fact] = [(h.kind, h.label) for h in frame.holders(block)]
    times = (frame.free or ()).count(block)
    if times:
        kind, text = (CACHED, "free, cached") if block in frame.cached else (FREE, "free")
        facts.append((kind, text if times == 1 else f"{text}, {times} times"))
    elif not facts and frame.free is not None and block in frame.blocks:
        facts.append((NOBODY, "no holder"))
    return facts


def _rows(facts: Sequence[Sequence[Fact]]) -> tuple[tuple[Bar, ...], ...]:
    """Bars of equal facts in as few rows as there were facts at one time; a bar keeps its row while it lasts."""
    rows: list[list[Bar]] = [[]]
    going: dict[tuple[str, str], int] = {}
    for now, present in enumerate(facts):
        going = {fact: row for fact, row in going.items() if fact in present}
        for fact in dict.fromkeys(present):
            if fact in going:
                bars = rows[going[fact]]
                bars[-1] = replace(bars[-1], length=bars[-1].length + 1)
                continue
            row = next((i for i in range(len(rows)) if i not in going.values()), len(rows))
            if row == len(rows):
                rows.append([])
            kind, text = fact
            rows[row].append(Bar(now, 1, kind, text, _shorter(text)))
            going[fact] = row
    return tuple(tuple(row) for row in rows)


def _shorter(text: str) -> str:
    """The part of a status that tells it from its like, for narrow bars."""
    for beginning in SHORTER:
        if text.startswith(beginning):
            return f"…{text.removeprefix(beginning)}"
    return text
