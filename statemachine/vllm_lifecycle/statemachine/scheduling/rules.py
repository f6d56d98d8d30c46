"""What the schedulers that are matched do differently from each other: data, one field per difference, cited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a release decides, where releases differ. The defaults are vLLM 0.13.0's (v1/core/sched/scheduler.py)."""

    asynchronous: bool = False
    """The next step is planned before the last one's tokens are known (AsyncScheduler._update_after_schedule)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The sizes of a deployment.

    tokens      most tokens of one step; model_len: longest sequence
    threshold   longest chunk of a prompt, 0 for no bound; chunked: prompts may be split
    lookahead   blocks' worth of tokens set aside for drafts that a proposer writes; drafts: draft tokens per request and step
    encoder     embeddings that one step may compute; shift: 1 if the drafter reads encoder outputs one token ahead
    loras       adapters per step, 0 for no bound
    cross       encoder tokens that an encoder-decoder request sets blocks aside for
    """

    tokens: int
    model_len: int
    threshold: int = 0
    chunked: bool = True
    lookahead: int = 0
    drafts: int = 0
    encoder: int = 0
    shift: int = 0
    loras: int = 0
    cross: int = 0
