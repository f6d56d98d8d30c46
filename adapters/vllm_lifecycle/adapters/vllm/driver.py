"""Owns one scheduler, applies events to it, and keeps the truth.

`Driver.apply` makes exactly one call of the scheduler's public API for one event.  An exception that leaves the
scheduler means that the engine dies: it comes out as `EngineDied` with the upstream file and line.  A call that does
not return within `PATIENCE` seconds comes out as `EngineDied` too (an endless loop).
"""

from __future__ import annotations

import signal
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from vllm_lifecycle.spec.lang.sparse import Cells

from .binding import Observed
from .config import Workshop
from .events import (
    GHOST,
    Abort,
    Add,
    Answer,
    Close,
    Continue,
    Decide,
    Event,
    Grammar,
    Pause,
    Report,
    Reset,
    Resume,
    Schedule,
)
from .extension import Extension
from .script import attach
from .snapshot import Observer, Snapshot
from .truth import Life, Outbox, Truth
from .violation import Violation
from .worker import answer_step, dispatch

PATIENCE = 5.0
_OURS = str(Path(__file__).parent.parent)


class Endless(BaseException):
    """A call did not return.  No `Exception`, so that code under test does not swallow it."""


class EngineDied(Exception):
    """An exception left the scheduler: in a real engine, the core process ends here."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.site, self.upstream = _site(error)
        first = str(error).strip().splitlines()
        told = str(error) if isinstance(error, Endless) else type(error).__name__
        if first and told != first[0]:
            told = f"{told}: {first[0]}"
        super().__init__(f"{told} at {self.site}")


def _site(error: BaseException) -> tuple[str, bool]:
    """file:line function of the innermost upstream frame, and whether the error comes from upstream at all.

    Frames of the standard library are passed over: the line that called it is the one to look at.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, Endless):
        frames.pop()  # the alarm's own frame
    mine = max((i for i, f in enumerate(frames) if f.filename.startswith(_OURS)), default=-1)
    theirs = frames[mine + 1 :]
    if not theirs:
        return "unknown", False
    last = next((f for f in reversed(theirs) if not _standard(f.filename)), theirs[-1])
    return f"{short(last.filename)}:{last.lineno} {last.name}", True


def _standard(path: str) -> bool:
    return path.startswith(sysconfig.get_path("stdlib")) and "site-packages" not in path


def short(path: str) -> str:
    """The path from the package folder on, or from the current folder: the same on every machine."""
    parts = Path(path).parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :])
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else "/".join(parts[-3:])


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise Endless in the main thread when the body takes longer."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Endless(f"the call does not return (waited {seconds:g} s)")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Driver:
    """One scheduler under test with its whole environment."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.scope = shop.scope
        self.scheduler = shop.scheduler()
        self.observer = Observer(self.scheduler)
        self.truth = Truth()
        self.extension: Extension = shop.extension(self)
        connector = self.observer.get("connector")
        if connector is not None:
            attach(connector, self.scope, self.truth, self.observer.null)

    @property
    def further(self) -> Mapping[str, Callable[[Observed], Cells]]:
        """Variables of the specification that only its family has."""
        return self.extension.bound

    def promises(self) -> list[Violation]:
        """Promises of its family's own words that are broken now."""
        return self.extension.promises()

    def snapshot(self) -> Snapshot:
        """What can be seen now."""
        return self.observer.snapshot(self.truth)

    @property
    def awake(self) -> bool:
        """Whether the engine loop would call `schedule` now."""
        return bool(self.scheduler.has_requests())

    @property
    def window(self) -> bool:
        """Whether the engine loop would let a client in now (it takes input when a further step may be dispatched)."""
        return len(self.truth.steps) < self.scope.depth

    def tracked(self, rid: str) -> Any:
        """The request object that the scheduler tracks under that id."""
        return self.observer.get("tracked requests").get(rid)

    def tag(self, rid: str) -> tuple[int, ...]:
        """What tells the present run of a request from others: incarnation, preemptions, turns of a session."""
        life, request = self.truth.lives[rid], self.tracked(rid)
        if request is None:
            return (life.epoch, -1)
        epoch = life.epoch if request is life.request else -1
        return (epoch, getattr(request, "num_preemptions", 0), life.request.num_prompt_tokens)

    def apply(self, event: Event) -> None:
        """Make the event happen.  Raises EngineDied when an exception leaves the scheduler."""
        try:
            self._apply(event)
            self.extension.observe()
        except (Exception, Endless) as error:
            died = EngineDied(error)
            if not died.upstream and not isinstance(error, Endless):
                raise
            raise died from error

    def run(self, events: tuple[Event, ...]) -> None:
        """Apply a whole sequence under the time-out; raises EngineDied."""
        with patience(PATIENCE):
            for event in events:
                self.apply(event)

    def _apply(self, event: Event) -> None:
        truth = self.truth
        match event:
            case Add():
                self._add(event)
            case Abort(rid=rid):
                self._finish(rid)
            case Continue(rid=rid, tokens=tokens):
                self._chunk(rid, tokens)
            case Close(rid=rid):
                truth.lives[rid].closed = True
                self.scheduler.add_request(self.shop.request(rid, [1], 1, self._order()))
            case Reset(forced=forced):
                truth.mishap |= forced
                self.scheduler.reset_prefix_cache(reset_running_requests=forced)
            case Pause(everything=everything):
                truth.pause = "PAUSED_ALL" if everything else "PAUSED_NEW"
                self._pause(truth.pause)
            case Resume():
                truth.pause = ""
                self._pause("UNPAUSED")
            case Schedule():
                dispatch(self)
            case Answer():
                answer_step(self, event)
            case Report():
                self._report(event)
            case Decide(rid=rid, match=match_):
                truth.lives[rid].match = match_
            case Grammar(rid=rid, ready=ready):
                self._grammar(rid, ready)
            case _:
                self.extension.apply(event)

    def _order(self) -> int:
        self.truth.adds += 1
        return self.truth.adds

    def _add(self, event: Add) -> None:
        truth, rid = self.truth, event.rid
        order = self._order()
        tokens = [1000 * (event.family + 1) + i for i in range(event.prompt)]
        more: dict[str, Any] = {
            "priority": event.priority,
            "resumable": event.session,
            "grammar": event.grammar,
            "pooling": event.pooling,
        }
        if event.adapter:
            more["lora_request"] = self.shop.adapter(event.adapter)
        if event.images:
            more["mm_features"] = self.shop.images(event.images, event.family, event.picture)
        request = self.shop.request(rid, tokens, event.answer, order, **more)
        epoch = 0
        if rid in truth.lives:
            epoch = truth.lives[rid].epoch + 1
            truth.past.append(truth.lives[rid])
        truth.lives[rid] = Life(
            rid=rid,
            epoch=epoch,
            request=request,
            match=event.match,
            hold=event.hold,
            prompt=event.prompt,
            answer=event.answer,
            session=event.session,
            order=order,
            pooling=event.pooling,
            priority=event.priority,
            grammar="pending" if event.grammar else "",
        )
        self.scheduler.add_request(request)
        if epoch and self.tracked(rid) is truth.past[-1].request:  # refused: the former owner keeps the id
            truth.lives[rid] = truth.past.pop()

    def _chunk(self, rid: str, tokens: int) -> None:
        life = self.truth.lives[rid]
        life.chunks += 1
        start = 5000 + 100 * life.chunks
        prompt = list(range(start, start + tokens))
        chunk = self.shop.request(rid, prompt, life.answer, self._order(), resumable=True)
        self.scheduler.add_request(chunk)

    def _finish(self, rid: str) -> None:
        self.truth.lives[rid].client_done = True
        self.scheduler.finish_requests(rid, self.shop.status.FINISHED_ABORTED)

    def _pause(self, state: str) -> None:
        self.scheduler.set_pause_state(type(self.scheduler.pause_state)[state])

    def _grammar(self, rid: str, ready: bool) -> None:
        life = self.truth.lives[rid]
        life.grammar = "ready" if ready else "failed"
        compiling: Future[AnyGrammar] = Future()
        if ready:
            compiling.set_result(AnyGrammar())
        else:
            compiling.set_exception(ValueError("no such grammar"))
        life.request.structured_output_request.grammar = compiling

    def _report(self, event: Report) -> None:
        """The connector's worker side says so; a transfer that it cannot know of is not over for that."""
        truth, rid, out = self.truth, event.rid, self.truth.outbox
        truth.mishap |= "failed" in event.kind
        match event.kind:
            case "sent":
                out.sent.append(rid)
                self._done("send", rid)
            case "received":
                out.received.append(rid)
                self._done("receive", rid)
            case "receive failed":
                out.failed.append(rid)
                out.received.append(rid)
                self._done("receive", rid)
            case "block failed":
                moving = truth.transfer("receive", rid) if truth.reportable("receive", rid) else None
                blocks = moving.blocks if moving else truth.steps[0].loads[rid]
                out.bad_blocks.add(blocks[-1])
                if moving:
                    out.received.append(rid)
                    self._done("receive", rid)

    def _done(self, kind: str, rid: str) -> None:
        transfer = self.truth.transfer(kind, rid)
        if transfer is not None and self.truth.reportable(kind, rid):
            self.truth.transfers.remove(transfer)
            self.truth.undelivered.append(transfer)
            self.truth.emitted += 1

    def take_outbox(self) -> Outbox:
        """What the connector's worker side has to say, once."""
        out, self.truth.outbox = self.truth.outbox, Outbox()
        return out


class AnyGrammar:
    """A compiled grammar that accepts every token."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def is_terminated(self) -> bool:
        return False


Player = Callable[[Driver], Event | None]
__all__ = ["GHOST", "AnyGrammar", "Driver", "EngineDied", "Player"]
