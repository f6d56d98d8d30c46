"""What one exploration may do: the size of the scheduler built, the events on offer, and the bounds.

A scope is plain frozen data.  It names feature combinations of the public configuration, never a defect: which
sequences are bad is found out by the search.  `PORTFOLIO` is what `check` runs when no scope is given.
Rejected: one scope with every feature on (too wide to be exhausted); a scope per known defect (a hint).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

LONG = 99
"""A bound on the length of sequences that no small scope comes to: a scope with it is meant to be exhausted."""
Level = Literal["legal", "hostile"]
Handoff = Literal["", "end", "prefill_finished", "special_token"]
Span = Literal["none", "block", "middle", "most", "all", "unknown"]


@dataclass(frozen=True)
class Match:
    """What the connector claims to hold for one prompt: how much, and whether it loads between steps.

    `block` is the longest whole-block prefix short of the prompt, `middle` ends inside a block, `most` leaves one
    token, `all` leaves none, `unknown` asks to be called again.
    """

    span: Span = "none"
    between_steps: bool = False

    def tokens(self, known: int, block_size: int) -> int | None:
        """The number of tokens claimed for a request of `known` tokens; None while unknown."""
        whole = (known - 1) // block_size * block_size
        match self.span:
            case "unknown":
                return None
            case "none":
                return 0
            case "block":
                return whole
            case "middle":
                return min(known - 1, max(1, whole - 1))
            case "most":
                return known - 1
            case "all":
                return known

    def __str__(self) -> str:
        return self.span if self.span in ("none", "unknown") else f"{self.span} ({self.how})"

    @property
    def how(self) -> str:
        return "async" if self.between_steps else "sync"


NO_MATCH = Match()


@dataclass(frozen=True)
class Scope:
    """Bounds and features of one exploration.

    `blocks` are usable ones (vLLM's null block is added on top); `depth` is the number of steps that may be in flight;
    `adds` bounds the client's requests in one sequence and `requests` how many ids it uses at once; `events` bounds
    the length of a sequence in the exhaustive search, `walk` in the random one.  `sharing` says whether prompts share
    their prefix with each other or with none.  `look_ahead` makes room for the drafts of a drafting model in each step.
    Where there is an encoder, `images` are the numbers of images on offer, and `encoder_tokens` the room in its cache (an
    image takes 4, so that by default a second one has to wait); images belong to the prompt, or are those from one of the
    `gallery` on.  With `state_space` the model has a group of state-space layers too, whose state is cached per block.
    `adapters` is the number of LoRA adapters in use, of which one at a time may run.  `handoff` says when blocks are
    handed to a next stage (when the request ends, or at a trigger before), `late_acknowledgements` that its
    acknowledgement may come in any later answer, `chunks` that input comes in pieces from a former stage, and `refusals`
    that the transport may refuse a chunk for the next one.
    """

    name: str
    requests: int = 2
    adds: int = 2
    blocks: int = 6
    block_size: int = 4
    slots: int = 2
    depth: int = 1
    asynchronous: bool = False
    token_budget: int = 64
    model_length: int = 64
    policy: Literal["fcfs", "priority"] = "fcfs"
    prompts: tuple[int, ...] = (6,)
    sharing: tuple[bool, ...] = (True,)
    answers: tuple[int, ...] = (2,)
    priorities: tuple[int, ...] = (0,)
    connector: bool = False
    connector_class: str = ""
    """`pkg.mod:Class` of a connector that answers for itself; empty for the driver's own, which answers by script."""
    matches: tuple[Match, ...] = (NO_MATCH,)
    holds: tuple[bool, ...] = (False,)
    load_failures: Literal["", "recompute", "fail"] = ""
    groups: int = 1
    drafts: int = 0
    look_ahead: bool = False
    sessions: bool = False
    grammar: bool = False
    encoder: Literal["", "decoder-only", "encoder-decoder"] = ""
    images: tuple[int, ...] = (0, 1)
    gallery: tuple[int, ...] = ()
    encoder_tokens: int = 6
    state_space: bool = False
    resets: bool = False
    pauses: bool = False
    pooling: bool = False
    adapters: int = 0
    handoff: Handoff = ""
    late_acknowledgements: bool = False
    chunks: bool = False
    refusals: bool = False
    level: Level = "legal"
    policy_properties: bool = False
    events: int = 10
    walk: int = 30
    share: float = 1.0
    tags: tuple[str, ...] = field(default=())

    def judging(self, connector: str) -> Scope:
        """The scope with a connector of the user's (`pkg.mod:Class`), whose matches and sends are its own."""
        return replace(self, connector_class=connector, matches=(NO_MATCH,), holds=(False,))

    def need(self, tokens: int) -> int:
        """Blocks that a request of `tokens` tokens needs when it is alone."""
        return -(-tokens // self.block_size) * self.groups
