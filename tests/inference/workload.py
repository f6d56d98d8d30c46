"""What the runs with real inference ask for: requests, engine options, and what a run must have gone through.

Everything here is drawn from seeds and independent of vLLM, so that two processes, or a process and a server, are asked the
same. A request is written with the names of the OpenAI-compatible completion API.

A scenario names the events that it is there for; a run in which one did not happen proves nothing and fails.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BLOCK = 32
LETTERS = 94  # the first tokens of the model's vocabulary are the printable ASCII characters
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}, "kind": {"enum": ["wait", "run"]}},
    "required": ["ready", "kind"],
    "additionalProperties": False,
}
STRUCTURED: tuple[dict[str, Any], ...] = (
    {"regex": "[a-f]{6}-[0-9]{4}"},
    {"choice": ["waiting", "running", "finished"]},
    {"json": SCHEMA, "disable_any_whitespace": True},
)


@dataclass(frozen=True)
class Asked:
    """One request: `arrives` after so many engine steps; its client leaves after `leaves` tokens, if ever."""

    name: str
    prompt: tuple[int, ...]
    sampling: Mapping[str, Any]
    priority: int = 0
    arrives: int = 0
    leaves: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether each token is the most likely one."""
        return not self.sampling["temperature"]


@dataclass(frozen=True)
class Scenario:
    """One engine and its requests.

    `options` are engine arguments by vLLM's names; `overlapped` asks for async scheduling; `stepped` drives the engine step by
    step, with arrivals and departures, and otherwise all requests are given to `LLM.generate`; `must` names the events that
    have to occur (keys of `engine.Run.events`).
    """

    name: str
    seed: int
    count: int
    options: Mapping[str, Any] = field(default_factory=dict)
    overlapped: bool = False
    stepped: bool = False
    repetitive: bool = False
    must: tuple[str, ...] = ()

    def asked(self) -> list[Asked]:
        """The requests; equal in every process."""
        draw = random.Random(self.seed)
        prefixes = [_text(draw, 3 * BLOCK + 5) for _ in range(4)]
        return [self._one(i, draw, prefixes) for i in range(self.count)]

    def _one(self, index: int, draw: random.Random, prefixes: list[tuple[int, ...]]) -> Asked:
        prompt = _repetitive(draw) if self.repetitive else _text(draw, draw.randint(3, 180))
        if draw.random() < 0.4:
            prompt = draw.choice(prefixes) + prompt
        tokens = draw.randint(4, 56)
        leaves = draw.randint(1, tokens) if self.stepped and draw.random() < 0.15 else None
        return Asked(
            name=f"{self.name}-{index}",
            prompt=prompt,
            sampling=_sampling(draw, tokens, seeded=self.options.get("enable_chunked_prefill") is False),
            priority=draw.randint(0, 3) if self.options.get("scheduling_policy") == "priority" else 0,
            arrives=draw.randint(0, self.count) if self.stepped and index >= 8 else 0,
            leaves=leaves,
        )


def _text(draw: random.Random, length: int) -> tuple[int, ...]:
    return tuple(draw.randrange(LETTERS) for _ in range(length))


def _repetitive(draw: random.Random) -> tuple[int, ...]:
    return _text(draw, draw.randint(3, 9)) * draw.randint(4, 12)


def _sampling(draw: random.Random, tokens: int, seeded: bool) -> dict[str, Any]:
    """With a seed only where prompts are not cut: vLLM's CPU runner cannot take back a draw that it made for a part."""
    sampling: dict[str, Any] = {"temperature": 0, "max_tokens": tokens, "ignore_eos": draw.random() < 0.8}
    kind = draw.random()
    if kind < 0.2 and seeded:
        sampling |= {"temperature": 0.8, "seed": draw.randrange(1 << 20), "top_p": 0.95}
    elif kind < 0.35:
        sampling |= {"structured_outputs": draw.choice(STRUCTURED), "max_tokens": 64, "ignore_eos": False}
    elif kind < 0.45:
        sampling |= {"stop_token_ids": [draw.randrange(LETTERS) for _ in range(24)]}
    return sampling


WHOLE = {"enable_chunked_prefill": False, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
PRESSED = {
    "scheduling_policy": "priority",
    "num_gpu_blocks_override": 64,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 128,
}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def scenarios(count: int) -> list[Scenario]:
    """All that `LLM` is asked, with `count` requests each."""
    pressure = ("preempted", "prefix_hit", "chunked", "left_early", "structured")
    return [
        Scenario("together", 1, count, WHOLE, must=("prefix_hit", "structured")),
        Scenario("pressed", 2, count, PRESSED, stepped=True, must=pressure),
        Scenario(
            "drafted",
            3,
            count,
            {**PRESSED, "scheduling_policy": "fcfs", "speculative_config": DRAFTS}
            | {"structured_outputs_config": {"backend": "guidance"}},
            stepped=True,
            repetitive=True,
            must=(*pressure, "draft_accepted", "draft_refused"),
        ),
        Scenario(
            "whole prompts",
            4,
            count,
            {**WHOLE, "enable_prefix_caching": False, "num_gpu_blocks_override": 64, "max_num_seqs": 32},
            stepped=True,
            must=("preempted", "left_early", "structured"),
        ),
        Scenario("overlapped", 5, count, WHOLE, overlapped=True, must=("prefix_hit", "structured")),
        Scenario("overlapped, pressed", 2, count, PRESSED, overlapped=True, stepped=True, must=pressure),
    ]
