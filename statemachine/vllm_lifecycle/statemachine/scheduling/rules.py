"""What the schedulers that are matched do differently from each other: data, one field per difference, cited.

Cited functions are those of v1/core/sched/scheduler.py of the release that does it; the defaults are vLLM 0.13.0's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a release decides, where releases differ."""

    asynchronous: bool = False
    """The next step is planned before the last one's tokens are known (AsyncScheduler._update_after_schedule)."""
    threshold_alone: bool = True
    """The threshold for long prefills binds also when there is only one request (schedule)."""
    pads: bool = False
    """Who is admitted with one token to compute gets a whole row of drafts, if the step has no prefill so far (schedule)."""
    looks_ahead_at_once: bool = False
    """Room for the drafter is taken at the first admission too, not only after a load (schedule)."""
    counts_loads: bool = False
    """A load in the background counts as computed from its start, by its match; else at its end, by its blocks (schedule)."""
    reserves: bool = False
    """A load in the background leaves room for the prefills that are under way (_inflight_prefill_reserved_blocks)."""
    cross_as_scheduled: bool = False
    """Cross attention gets room for the encoder inputs of this step; else for the most an encoder may have (schedule)."""
    tells_table: bool = False
    """The connector hears the whole table also of a request that goes on after a load; else only what is new (schedule)."""
    returns_inputs: bool = False
    """Encoder inputs of a request that then finds no blocks are given back (schedule)."""


V0_13_0 = Rules()
V0_32_0 = Rules(
    threshold_alone=False,
    pads=True,
    looks_ahead_at_once=True,
    counts_loads=True,
    reserves=True,
    cross_as_scheduled=True,
    tells_table=True,
    returns_inputs=True,
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The sizes of a deployment.

    tokens      most tokens of one step; model_len: longest sequence
    inputs      most tokens of one step with the `extra` ones that a drafter needs for each row; 0: as `tokens`
    sampled     tokens that a row samples: 0 for models that only read
    threshold   longest chunk of a prompt, 0 for no bound; adaptive: at least a fair share; chunked: prompts may be split
    lookahead   blocks' worth of tokens set aside for drafts that a proposer writes; drafts: draft tokens per request and step
    encoder     embeddings that one step may compute; shift: 1 if the drafter reads encoder outputs one token ahead
    loras       adapters per step, 0 for no bound
    cross       encoder tokens that an encoder-decoder request sets blocks aside for
    watermark   blocks that an admission leaves free when somebody runs
    headroom    blocks that a load in the background leaves free beside all reservations
    """

    tokens: int
    model_len: int
    inputs: int = 0
    extra: int = 0
    sampled: int = 1
    threshold: int = 0
    adaptive: bool = False
    chunked: bool = True
    lookahead: int = 0
    drafts: int = 0
    encoder: int = 0
    shift: int = 0
    loras: int = 0
    cross: int = 0
    watermark: int = 0
    headroom: int = 0
    whole_fits: bool = False
    """A request is admitted only when all its known tokens would fit (scheduler_reserve_full_isl of 0.32.0)."""
    drops_output: bool = False
    """Tokens in flight of a preempted request are dropped: the connector needs the KV of what it delivers."""
