"""What a pair of schedulers is built from, and what is done to it: plain data that prints short and is saved as JSON.

Rules: an event names its subject by id and does nothing when there is no such subject, so that any event can be deleted from a
list and the rest still runs (the minimiser deletes).  Everything that the environment will answer about a request is in its
`Add`: where it stops, what the connector claims, whether its blocks are held.  Rejected: drawing answers from a generator while
replaying, because one deletion would then change everything behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


def _short(value: object) -> str:
    """The constructor call with only what differs from the defaults."""
    told = []
    for field in fields(value):  # type: ignore[arg-type]
        content = getattr(value, field.name)
        if content != field.default:
            told.append(
                repr(content) if field.name in {"rid", "rids", "accept"} else f"{field.name}={content!r}"
            )
    return f"{type(value).__name__}({', '.join(told)})"


@dataclass(frozen=True)
class Setup:
    """The configuration of both schedulers; tokens, blocks and requests are counts."""

    block_size: int = 4
    blocks: int = 32
    slots: int = 8
    budget: int = 32
    model_length: int = 64
    chunked: bool = True
    long_prefill: int = 0
    caching: bool = True
    policy: str = "fcfs"
    drafts: int = 0
    look_ahead: bool = False
    """Drafts come from a drafting model (EAGLE): its blocks are taken ahead, and a hit loses its last block."""
    asynchronous: bool = False
    stages: int = 1
    connector: bool = False
    load_failures: str = "recompute"
    encoder: str = ""
    """Empty, decoder-only or encoder-decoder."""
    encoder_tokens: int = 6
    """Both the compute budget of a step and the size of the encoder cache."""
    whole_images: bool = False
    encoder_connector: bool = False
    adapters: int = 0
    log_stats: bool = False
    events: bool = False
    finished_sets: bool = False
    second_runner: bool = False
    window: int = 0
    """Blocks of a second cache group with a sliding window; 0: one group."""

    @property
    def depth(self) -> int:
        """Steps that may be in flight."""
        return 2 if self.asynchronous else self.stages

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Add:
    """A request arrives: `shared` tokens common to its family, then `own` tokens of its own."""

    rid: str = ""
    own: int = 0
    shared: int = 0
    family: int = 0
    answer: int = 1
    eos: int = -1
    """The output position at which the model samples the end token; -1: never."""
    stop: int = -1
    """The same for the stop token."""
    min_answer: int = 0
    ignore_eos: bool = False
    priority: int = 0
    arrival: int = 0
    client: int = 0
    salt: str = ""
    skip_cache: bool = False
    grammar: bool = False
    refuses: int = -1
    """The output position at which the grammar takes no further token; -1: never."""
    pooling: bool = False
    adapter: int = 0
    images: int = 0
    remote_images: int = 0
    """How many of its first images the encoder connector has."""
    picture: int = 0
    """Requests of one picture number show the same images."""
    match: int = 0
    """Tokens that the connector claims to have, counted from the start of the prompt."""
    between: bool = False
    """They are loaded between steps (asynchronously)."""
    undecided: int = 0
    """How often the connector does not know yet."""
    rematch: bool = False
    """The connector claims them again when the request is resumed."""
    hold: bool = False
    """The connector keeps the blocks when the request has finished, until the send is reported."""
    logprobs: bool = False

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Step:
    """`schedule`, and the grammar bitmask: a step is in flight."""

    def __repr__(self) -> str:
        return "Step()"


@dataclass(frozen=True)
class Answer:
    """`update_from_output` for the oldest step in flight; the number decides how many drafts are accepted and proposed."""

    accept: int = 0

    def __repr__(self) -> str:
        return f"Answer({self.accept})"


@dataclass(frozen=True)
class Abort:
    """The clients of these requests are gone."""

    rids: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Received:
    """A load between steps is complete: the next answer says so."""

    rid: str = ""

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Sent:
    """A send is complete: the next answer says so."""

    rid: str = ""

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Broken:
    """The load of a request failed from this block of the load on: the answer that covers it says so."""

    rid: str = ""
    block: int = 0

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Grammar:
    """The compilation of a grammar ends."""

    rid: str = ""
    failed: bool = False

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True)
class Reset:
    """`reset_prefix_cache`."""

    running: bool = False
    connector: bool = False

    def __repr__(self) -> str:
        return _short(self)


Event = Add | Step | Answer | Abort | Received | Sent | Broken | Grammar | Reset


@dataclass(frozen=True)
class Case:
    """One run: what is built, and what happens to it."""

    setup: Setup
    events: tuple[Event, ...]

    @property
    def steps(self) -> int:
        """How often `schedule` is called."""
        return sum(isinstance(event, Step) for event in self.events)

    def __str__(self) -> str:
        lines = "".join(f"    {event!r},\n" for event in self.events)
        return f"Case({self.setup!r}, (\n{lines}))"
