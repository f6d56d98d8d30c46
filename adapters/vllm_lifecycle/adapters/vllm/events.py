"""Everything that can happen to a scheduler from outside, as frozen data.

Each event is one call of the public API (or one fact that the next call carries).  Events name requests by the
client's id.  Whether an event keeps the API's contract depends on the state in which it comes: see `contract`.
Rejected: events as callables (a sequence must be hashable, printable, replayable and shrinkable).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .scope import NO_MATCH, Match

Party = Literal["scheduler", "client", "worker", "connector"]
GHOST = "ghost"
"""An id that no client ever used."""


@dataclass(frozen=True)
class Add:
    """The client sends a request; the connector's answers for it are scripted here too."""

    rid: str
    prompt: int
    answer: int
    family: int = 0
    priority: int = 0
    match: Match = NO_MATCH
    hold: bool = False
    session: bool = False
    grammar: bool = False
    images: int = 0
    pooling: bool = False
    adapter: int = 0
    picture: int = 0


@dataclass(frozen=True)
class Abort:
    """The client gives a request up."""

    rid: str


@dataclass(frozen=True)
class Continue:
    """The next input chunk of a streaming session."""

    rid: str
    tokens: int = 2


@dataclass(frozen=True)
class Close:
    """The client ends a streaming session."""

    rid: str


@dataclass(frozen=True)
class Reset:
    """Prefix-cache reset, with or without forced preemption of the running requests."""

    forced: bool


@dataclass(frozen=True)
class Pause:
    """The operator pauses scheduling: new requests only, or everything."""

    everything: bool


@dataclass(frozen=True)
class Resume:
    """The operator resumes scheduling."""


@dataclass(frozen=True)
class Schedule:
    """The engine loop asks for the next step and dispatches it."""


@dataclass(frozen=True)
class Answer:
    """The worker answers the oldest dispatched step.

    Every request that completed its known tokens samples one token; `stop` samples its stop token instead, `empty`
    samples nothing, `omit` is left out of the answer, `sentinel` samples the token that triggers a hand-off.  `accepted`
    is the number of drafts accepted per request.
    """

    stop: str = ""
    empty: str = ""
    omit: str = ""
    accepted: int = 9
    sentinel: str = ""


@dataclass(frozen=True)
class Report:
    """The connector's worker side reports on a transfer; the next answer carries it to the scheduler."""

    kind: Literal["received", "receive failed", "block failed", "sent"]
    rid: str


@dataclass(frozen=True)
class Decide:
    """The connector now knows what it holds for a request that it had put off."""

    rid: str
    match: Match


@dataclass(frozen=True)
class Grammar:
    """Grammar compilation ends."""

    rid: str
    ready: bool


@dataclass(frozen=True)
class Acknowledge:
    """The worker says that it has handed a request's blocks to the next stage; the next answer carries it."""

    rid: str


@dataclass(frozen=True)
class Chunk:
    """A former stage produced the next piece of input for a request, perhaps the last one."""

    rid: str
    last: bool = False


@dataclass(frozen=True)
class Refuse:
    """The transport to the next stage takes no chunk this once, and says so."""


Event = (
    Add
    | Abort
    | Continue
    | Close
    | Reset
    | Pause
    | Resume
    | Schedule
    | Answer
    | Report
    | Decide
    | Grammar
    | Acknowledge
    | Chunk
    | Refuse
)


def party(event: Event) -> Party:
    """Who makes the event happen: the one to blame when it breaks the contract."""
    match event:
        case Answer() | Acknowledge():
            return "worker"
        case Report() | Decide() | Chunk() | Refuse():
            return "connector"
        case Add(match=m) if m.span == "all":
            return "connector"
        case Schedule():
            return "scheduler"
        case _:
            return "client"


def describe(event: Event) -> str:
    """The event as one line in vLLM's words."""
    match event:
        case Add():
            extra = [f"priority {event.priority}"] if event.priority else []
            extra += [f"connector holds: {event.match}"] if event.match.span != "none" else []
            extra += ["connector sends on finish"] if event.hold else []
            extra += ["streaming session"] if event.session else []
            extra += ["structured output"] if event.grammar else []
            shown = f" from picture {event.picture} on" if event.picture else ""
            extra += [f"{event.images} image(s){shown}"] if event.images else []
            extra += ["pooling"] if event.pooling else []
            extra += [f"LoRA adapter {event.adapter}"] if event.adapter else []
            tail = f" ({', '.join(extra)})" if extra else ""
            return f"add_request({event.rid}): prompt {event.prompt}, max_tokens {event.answer}{tail}"
        case Abort():
            return f"finish_requests({event.rid}, FINISHED_ABORTED)"
        case Continue():
            return f"add_request({event.rid}): next chunk of the session, {event.tokens} tokens"
        case Close():
            return f"add_request({event.rid}): end of the session"
        case Reset():
            return f"reset_prefix_cache(reset_running_requests={event.forced})"
        case Pause():
            return f"set_pause_state({'PAUSED_ALL' if event.everything else 'PAUSED_NEW'})"
        case Resume():
            return "set_pause_state(UNPAUSED)"
        case Schedule():
            return "schedule()"
        case Answer():
            parts = [f"{event.stop} samples its stop token"] if event.stop else []
            parts += [f"{event.empty} samples nothing"] if event.empty else []
            parts += [f"{event.omit} is missing from the answer"] if event.omit else []
            parts += [f"{event.accepted} drafts accepted"] if event.accepted < 9 else []
            parts += [f"{event.sentinel} samples the sentinel"] if event.sentinel else []
            return f"update_from_output({', '.join(parts) or 'one token each'})"
        case Report():
            return f"connector worker reports: {event.kind} {event.rid}"
        case Decide():
            return f"connector decides for {event.rid}: {event.match}"
        case Acknowledge():
            return f"worker acknowledges the hand-off of {event.rid}"
        case Chunk():
            return f"{'last ' if event.last else ''}chunk for {event.rid} arrives"
        case Refuse():
            return "the transport to the next stage refuses the next chunk"
        case Grammar():
            return f"grammar of {event.rid} {'ready' if event.ready else 'failed to compile'}"
