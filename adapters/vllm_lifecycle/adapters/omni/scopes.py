"""The scopes explored on vllm-omni's scheduler when none is named: its own features, then vLLM's."""

from __future__ import annotations

from vllm_lifecycle.adapters.vllm.portfolio import PORTFOLIO as STOCK
from vllm_lifecycle.adapters.vllm.scope import NO_MATCH, Match, Scope

_LOAD = Match("block", True)

PORTFOLIO: tuple[Scope, ...] = (
    Scope("one hand-off", requests=1, adds=1, blocks=3, handoff="prefill_finished", resets=True, events=99),
    Scope(
        "two hand-offs",
        blocks=4,
        handoff="prefill_finished",
        late_acknowledgements=True,
        prompts=(5,),
        sharing=(False,),
        events=99,
    ),
    Scope("one request in chunks", requests=1, adds=1, blocks=3, chunks=True, prompts=(5,), events=99),
    Scope("hand-off at the end", adds=3, blocks=4, handoff="end", prompts=(3, 6), share=2.0),
    Scope("hand-off after the prompt", adds=3, blocks=4, handoff="prefill_finished", prompts=(6,), share=2.0),
    Scope(
        "hand-off at a token",
        adds=3,
        blocks=5,
        handoff="special_token",
        answers=(3,),
        prompts=(5,),
        share=2.0,
    ),
    Scope(
        "hand-off and pipeline",
        depth=2,
        adds=3,
        blocks=5,
        handoff="prefill_finished",
        prompts=(5,),
        answers=(6,),
        sharing=(False,),
        resets=True,
        share=2.0,
    ),
    Scope(
        "late acknowledgements",
        adds=3,
        handoff="prefill_finished",
        late_acknowledgements=True,
        prompts=(6,),
        resets=True,
        share=2.0,
    ),
    Scope(
        "hand-off and connector",
        adds=3,
        handoff="end",
        late_acknowledgements=True,
        connector=True,
        matches=(NO_MATCH, _LOAD),
        holds=(False, True),
        share=3.0,
    ),
    Scope(
        "careless acknowledgements",
        handoff="prefill_finished",
        late_acknowledgements=True,
        level="hostile",
    ),
    Scope("chunks", adds=3, chunks=True, answers=(2, 4), sharing=(False,), share=2.0),
    Scope(
        "chunks beyond the slots",
        requests=4,
        adds=4,
        slots=1,
        blocks=8,
        chunks=True,
        answers=(4,),
        sharing=(False,),
        walk=40,
        share=3.0,
    ),
    Scope("chunks and hand-off", adds=3, chunks=True, handoff="end", late_acknowledgements=True),
    Scope(
        "chunks and failed loads",
        requests=1,
        adds=1,
        depth=2,
        blocks=3,
        connector=True,
        matches=(Match("block"),),
        load_failures="fail",
        chunks=True,
        events=99,
    ),
    Scope("hand-off of two groups", groups=2, blocks=8, handoff="end", late_acknowledgements=True),
    *STOCK,
)
