"""A finding as people and machines read it: what fell, whose fault, and the minimal sequence in vLLM's words.

The text shows each call with what it changed; the plain data is self-contained (see `saved` for its file).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from vllm_lifecycle.adapters.report.custody import Moment, Picture

from . import custody
from .config import Workshop
from .driver import PATIENCE, Driver, EngineDied, patience
from .events import Event, Party, describe
from .play import Failure, Game
from .scope import Scope
from .snapshot import Snapshot


@dataclass(frozen=True)
class StepLine:
    """One call of the sequence and what it changed."""

    call: str
    breach: str
    changes: tuple[str, ...]

    def lines(self, number: int) -> list[str]:
        """The call with its number, and what it changed below it."""
        mark = f"   <- breaks the contract: {self.breach}" if self.breach else ""
        return [f"  {number:3} {self.call}{mark}", *(f"        {change}" for change in self.changes)]


@dataclass(frozen=True)
class Finding:
    """A property of the specification that the target does not keep."""

    claim: str
    message: str
    site: str
    fault: Party
    breach: str
    """The rule of the contract that the party at fault broke; empty when the scheduler fails on a legal sequence."""
    target: str
    version: str
    scope: Scope
    events: tuple[Event, ...]
    steps: tuple[StepLine, ...]
    outlook: str = ""
    kind: str = ""
    """Tells different mechanisms of one claim apart."""
    occasion: str = ""
    """The kind of call from outside on which it fell, an answer also by what it carries."""
    picture: Picture | None = field(default=None, compare=False, repr=False)
    """Who held which block after each call."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Findings with the same key are one finding: claim, line, the call from outside that led there, mechanism."""
        return self.claim, self.site, self.occasion, self.kind

    @property
    def known_as(self) -> tuple[str, str, str, str]:
        """Property, file, function and call from outside: what stays the same from run to run and when lines move."""
        place, _, function = self.site.partition(" ")
        call = "" if self.outlook or not self.site else type(self.events[-1]).__name__
        return self.claim, place.rpartition(":")[0], function, call

    def text(self) -> str:
        """The finding in full."""
        side = f" ({self.breach})" if self.breach else ""
        lines = [
            f"{self.claim}",
            f"  {self.message}",
            f"  at {self.site or 'no single line'}; fault: {self.fault}{side}",
            f"  {self.target} on vLLM {self.version}, scope {self.scope.name}; {len(self.steps)} events:",
        ]
        for number, step in enumerate(self.steps, 1):
            lines += step.lines(number)
        if self.outlook:
            lines.append(f"      {self.outlook}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `saved.load` is the inverse for what a replay needs."""
        return {
            "property": self.claim,
            "message": self.message,
            "site": self.site,
            "fault": self.fault,
            "breach": self.breach,
            "target": self.target,
            "version": self.version,
            "scope": dataclasses.asdict(self.scope),
            "events": [{"event": type(e).__name__, **dataclasses.asdict(e)} for e in self.events],
            "steps": [dataclasses.asdict(s) for s in self.steps],
        }


def tell(shop: Workshop, target: str, failure: Failure, site: str) -> Finding:
    """Replay a minimal failing sequence once more and write down what each call changed."""
    game = Game(Driver(shop), shop.judge)
    steps: list[StepLine] = []
    moments: list[Moment] = []
    outlook = ""
    with patience(PATIENCE):
        for event in failure.events:
            before, known = game.driver.snapshot(), len(game.breaches)
            died: tuple[str, ...] = ()
            game.push(event)
            try:
                game.apply(event)
            except EngineDied as death:
                died = (f"the engine dies: {death}",)
            breach = game.breaches[-1][1] if len(game.breaches) > known else ""
            changed = died or tuple(changes(before, game.driver.snapshot()))
            steps.append(StepLine(describe(event), breach, changed))
            seen = None if died else custody.frame(game.driver)
            moments.append(Moment(steps[-1].call, changed, seen, breach))
            if died:
                break
        if failure.after == "fairness":
            outlook = "then everybody but the scheduler goes on fairly"
            last = game.outlook(set())
            seen = None if last is not None and last.site else custody.frame(game.driver)
            moments.append(Moment(outlook, (failure.message,), seen))
    fault, rule = game.breaches[0] if game.breaches else ("scheduler", "")
    return Finding(
        claim=failure.claim,
        message=failure.message,
        site=site,
        fault=fault,
        breach=rule,
        target=target,
        version=shop.version,
        scope=shop.scope,
        events=failure.events,
        steps=tuple(steps),
        kind=failure.kind,
        occasion=failure.after,
        outlook=outlook,
        picture=Picture(tuple(moments), custody.subjects(failure.subject), lasting=bool(outlook)),
    )


def changes(before: Snapshot, now: Snapshot) -> list[str]:
    """What a call changed, one line per kind of thing."""
    out: list[str] = []
    old = {(r.rid, r.epoch): r for r in before.requests}
    for r in now.requests:
        o = old.pop((r.rid, r.epoch), None)
        parts = []
        if o is None or o.status != r.status:
            parts.append(f"{o.status} -> {r.status}" if o else r.status)
        if (o.queues if o else ()) != r.queues:
            parts.append(f"in {'+'.join(r.queues) or 'no queue'}")
        if (o.table if o else ()) != r.table:
            parts.append(f"blocks {list(r.table)}")
        if o is None or (o.computed, o.known, o.placeholders) != (r.computed, r.known, r.placeholders):
            more = f" +{r.placeholders} placeholders" if r.placeholders else ""
            parts.append(f"{r.computed} of {r.known}{more} tokens computed")
        if parts:
            out.append(f"{r.rid}: {', '.join(parts)}")
    out += [f"{rid}: forgotten" for rid, _ in old]
    if before.free != now.free or before.free_count != now.free_count:
        counter = "" if len(now.free) == now.free_count else f" (counter {now.free_count})"
        out.append(f"free list {list(now.free)}{counter}")
    if before.flights != now.flights:
        moving = [f"{f.kind} {f.rid} {list(f.blocks)}" for f in now.flights]
        out.append(f"in flight: {', '.join(moving) or 'nothing'}")
    if before.awake != now.awake:
        out.append(f"has_requests() -> {now.awake}")
    return out
