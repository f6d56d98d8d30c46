"""The scopes that `check` explores when none is named: combinations of public features at small size.

They speak of configurations, not of defects.  Each feature appears in at least one scope small enough for the
exhaustive part and in one wider scope for the walks; the contract level of a scope decides whether the environment may
break its rules.
"""

from __future__ import annotations

from .scope import NO_MATCH, Match, Scope

_SYNC_BLOCK, _SYNC_MIDDLE, _SYNC_ALL = Match("block"), Match("middle"), Match("all")
_BLOCK, _MOST, _ALL = Match("block", True), Match("most", True), Match("all", True)
_LOADS = (NO_MATCH, _BLOCK, _MOST)

PORTFOLIO: tuple[Scope, ...] = (
    Scope("alone", requests=1, adds=1, blocks=3, resets=True, events=99, share=0.5),
    Scope("queueing", requests=3, adds=3, blocks=4, prompts=(3, 6, 20), sharing=(True, False), resets=True),
    Scope(
        "pressure",
        requests=3,
        adds=3,
        blocks=6,
        slots=3,
        prompts=(5,),
        answers=(6,),
        sharing=(False,),
        policy="priority",
        priorities=(0, 1),
    ),
    Scope("loads", requests=3, adds=3, connector=True, matches=_LOADS, holds=(False, True), resets=True),
    Scope(
        "load failures",
        connector=True,
        matches=(NO_MATCH, _BLOCK, _SYNC_MIDDLE),
        load_failures="recompute",
        prompts=(6, 10),
    ),
    Scope(
        "pipeline",
        depth=2,
        blocks=5,
        connector=True,
        matches=(NO_MATCH, _BLOCK, _SYNC_BLOCK),
        holds=(False, True),
        resets=True,
        prompts=(6, 9),
    ),
    Scope("put off", connector=True, matches=(Match("unknown"), _ALL), pauses=True, resets=True),
    Scope("sessions", adds=4, slots=1, sessions=True, pauses=True),
    Scope("grammar", adds=3, grammar=True, depth=2, answers=(3,)),
    Scope(
        "drafts",
        requests=3,
        adds=3,
        drafts=2,
        blocks=6,
        prompts=(5,),
        answers=(5,),
        sharing=(False,),
        resets=True,
    ),
    Scope(
        "one load", requests=1, adds=1, blocks=3, connector=True, matches=(_BLOCK,), resets=True, events=99
    ),
    Scope(
        "loads that fill the pool",
        blocks=4,
        connector=True,
        matches=(NO_MATCH, _BLOCK),
        prompts=(10, 14),
        sharing=(False,),
    ),
    Scope(
        "loads and drafts",
        blocks=4,
        connector=True,
        matches=(NO_MATCH, _MOST),
        prompts=(8,),
        sharing=(False,),
        drafts=2,
    ),
    Scope(
        "pooling and adapters",
        requests=3,
        adds=3,
        pooling=True,
        adapters=2,
        sharing=(False,),
        resets=True,
    ),
    Scope(
        "images under pressure",
        requests=3,
        adds=4,
        blocks=5,
        slots=3,
        encoder="decoder-only",
        policy="priority",
        priorities=(0, 1),
        prompts=(6,),
        sharing=(True, False),
        answers=(4,),
    ),
    Scope(
        "encoder",
        requests=3,
        adds=3,
        encoder="decoder-only",
        prompts=(9,),
        sharing=(True, False),
        answers=(3,),
    ),
    Scope("encoder-decoder", encoder="encoder-decoder", prompts=(5,), sharing=(False,), answers=(3,)),
    Scope("careless worker", requests=2, depth=2, answers=(3,), level="hostile", drafts=0),
    Scope(
        "careless connector",
        connector=True,
        matches=(NO_MATCH, _SYNC_ALL, _BLOCK),
        holds=(False, True),
        level="hostile",
    ),
    Scope(
        "hybrid",
        connector=True,
        groups=2,
        matches=(NO_MATCH, _BLOCK, _SYNC_BLOCK),
        level="hostile",
    ),
)
