"""Known sequences played on the verified scheduler: nothing may fall, on the way or in the fair continuation.

A sequence is played on both verified classes, whatever class and release it was found on, and on the class that it was found
on, where its property falls if that release is the installed one. Not comparable are those that need what the verified scheduler
refuses at its start, or does not take (a session): `refused` says so, and is never counted as clean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import msgspec

from vllm_lifecycle.adapters.vllm.config import Unusable, Workshop
from vllm_lifecycle.adapters.vllm.contract import IMPOSSIBLE, judge
from vllm_lifecycle.adapters.vllm.driver import PATIENCE, Driver, patience
from vllm_lifecycle.adapters.vllm.events import Add
from vllm_lifecycle.adapters.vllm.play import Game
from vllm_lifecycle.adapters.vllm.rerun import rerun
from vllm_lifecycle.adapters.vllm.saved import Saved
from vllm_lifecycle.adapters.vllm.scope import Scope
from vllm_lifecycle.adapters.vllm.target import build

from .rows import Row
from .sequences import Known

VERIFIED = (
    "vllm_lifecycle.adapters.vllm:VerifiedScheduler",
    "vllm_lifecycle.adapters.vllm:VerifiedAsyncScheduler",
)
CLEAN, REFUSED = "clean", "refused"


@dataclass(frozen=True)
class Played:
    """How one sequence ended: what fell, in order; `refused` when it cannot be played on the class."""

    fell: tuple[str, ...] = ()
    refused: str = ""

    @property
    def end(self) -> str:
        """In one word, or the properties that fell."""
        return REFUSED if self.refused else " ".join(self.fell) or CLEAN


@lru_cache(maxsize=512)
def _workshop(target: str, scope: Scope) -> Workshop | str:
    try:
        shop = Workshop(target, scope)
        build(shop)
    except Unusable as why:
        return str(why)
    return shop


def play(target: str, saved: Saved) -> Played:
    """Play a sequence on a class to its end, and go on fairly; events that are impossible where they stand are left out."""
    shop = _workshop(target, saved.scope)
    if isinstance(shop, str):
        return Played(refused=shop)
    game = Game(Driver(shop), shop.judge)
    fell: list[str] = []
    with patience(PATIENCE):
        for event in saved.events:
            if judge(game.driver, event) == IMPOSSIBLE:
                if isinstance(event, Add) and event.session:
                    return Played(refused="a streaming session is not taken")
                continue
            failures = game.play(event)
            fell += [f.claim for f in failures]
            if any(f.final for f in failures):
                return Played(tuple(fell))
        last = game.outlook(set())
    return Played((*fell, last.claim) if last else tuple(fell))


@dataclass(frozen=True)
class Line:
    """One sequence on one release: where it was found, what it is, whether it falls there, and how ours end it."""

    found_on: str
    rows: tuple[str, ...]
    what: str
    falls: bool | None
    """On the class that it was found on; None when the installed release is another one."""
    ours: tuple[str, ...]
    """By class, as in `VERIFIED`."""


@dataclass(frozen=True)
class Replayed:
    """All known sequences on one release."""

    release: str
    lines: tuple[Line, ...]

    @staticmethod
    def read(text: str) -> Replayed:
        """From JSON; ValueError when it is none."""
        try:
            return msgspec.json.decode(text, type=Replayed)
        except msgspec.DecodeError as error:
            raise ValueError(f"not the replays of known sequences: {error}") from None

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def replay(known: Iterable[Known], release: str) -> Replayed:
    """Play all of them with the installed release."""
    out = []
    for one in known:
        here = one.saved.version == release
        falls = rerun(one.saved).fell if here else None
        ours = tuple(play(target, one.saved).end for target in VERIFIED)
        out.append(Line(one.saved.version, one.rows, one.what, falls, ours))
    return Replayed(release, tuple(out))


HEADING = "## On the verified scheduler"


def section(told: Sequence[Replayed], rows_of: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """The part of the document about them; `rows_of` gives the rows that misbehave on each release."""
    yield HEADING
    yield ""
    yield "The sequences that were found on vLLM's own classes (`docs/corpus/*.jsonl`), those of every release on each, played"
    yield "on both verified classes and then gone on with fairly: clean means that no property fell. Refused are those that need"
    yield "a feature that the verified scheduler refuses (`docs/features.md`). A test plays all of them in CI."
    yield ""
    for one in told:
        yield f"{one.release}: {_together(one.lines)}"
        yield ""
        yield "| row | defect | vLLM's own: falls | verified scheduler | verified scheduler, async |"
        yield "|---|---|---|---|---|"
        for row in rows_of[one.release]:
            mine = [line for line in one.lines if row.name in line.rows]
            yield f"| {row.name} | {row.title} | {_falls(mine)} | {_ends(mine, 0)} | {_ends(mine, 1)} |"
        beyond = [line for line in one.lines if not line.rows]
        yield f"| | kinds beyond the rows | {_falls(beyond)} | {_ends(beyond, 0)} | {_ends(beyond, 1)} |"
        yield ""


def _together(lines: Sequence[Line]) -> str:
    counted = Counter(end if end in (CLEAN, REFUSED) else "not clean" for line in lines for end in line.ours)
    return f"{len(lines)} sequences on two classes: {', '.join(f'{n} {end}' for end, n in sorted(counted.items()))}."


def _falls(lines: Sequence[Line]) -> str:
    here = [line for line in lines if line.falls is not None]
    return f"{sum(bool(line.falls) for line in here)} of {len(here)}" if here else "-"


def _ends(lines: Sequence[Line], place: int) -> str:
    counted = Counter(line.ours[place] for line in lines)
    return ", ".join(f"{n} {end}" for end, n in sorted(counted.items())) or "no sequence"
