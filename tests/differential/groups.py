"""Feature groups: which setups are built, and what their requests and events look like.

A group draws a setup and a `Mix` from a seed; the generator plays it.  Setups are drawn from small sets, so that configurations,
which take milliseconds, are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.differential.settings import Setup


@dataclass(frozen=True)
class Mix:
    """Probabilities (of a request or of an iteration) and ranges of one run."""

    arrivals: float = 0.35
    burst: int = 3
    live: int = 12
    own: tuple[int, int] = (1, 20)
    answer: tuple[int, int] = (1, 12)
    shared: float = 0.3
    families: int = 2
    eos: float = 0.1
    stop: float = 0.1
    min_answer: float = 0.0
    ignore_eos: float = 0.0
    priorities: int = 1
    clients: int = 1
    salt: float = 0.0
    skip_cache: float = 0.0
    grammar: float = 0.0
    grammar_late: float = 0.5
    grammar_failed: float = 0.0
    refuses: float = 0.0
    pooling: float = 0.0
    adapters: int = 0
    images: float = 0.0
    remote_images: float = 0.0
    match: float = 0.0
    between: float = 0.5
    undecided: float = 0.2
    rematch: float = 0.0
    hold: float = 0.0
    broken: float = 0.0
    abort: float = 0.03
    abort_loading: float = 0.0
    reset: float = 0.0
    reset_running: float = 0.0
    logprobs: float = 0.0


AHEAD = "-ahead"
"""Ends the name of a group that is scheduled asynchronously."""

Drawn = tuple[Setup, Mix]
Group = Callable[[Random], Drawn]


def _tight(rng: Random, **more: Any) -> dict[str, Any]:
    """A cache in which not everybody fits."""
    return {"blocks": rng.choice((14, 18, 24)), "slots": rng.choice((4, 8)), **more}


def mixed(rng: Random) -> Drawn:
    """Prompts and answers of all lengths, room enough."""
    return Setup(blocks=rng.choice((40, 64)), slots=rng.choice((4, 8)), budget=rng.choice((16, 40))), Mix(
        min_answer=0.1, ignore_eos=0.1
    )


def sharing(rng: Random) -> Drawn:
    """Common starts, salts, hits of whole prompts, eviction."""
    return Setup(blocks=rng.choice((20, 28, 48)), caching=rng.random() < 0.9), Mix(
        shared=0.8, own=(0, 10), salt=0.15, skip_cache=0.1, families=rng.choice((1, 3))
    )


def chunking(rng: Random) -> Drawn:
    """Prompts longer than a step; the threshold for long prefills; chunking off."""
    if rng.random() < 0.3:
        return Setup(chunked=False, budget=64, blocks=40), Mix(own=(4, 40), arrivals=0.5)
    return Setup(
        slots=4,
        budget=rng.choice((6, 10, 16)),
        long_prefill=rng.choice((0, 0, 3, 5)),
        blocks=rng.choice((24, 40)),
    ), Mix(own=(4, 40), shared=0.4)


def preemption(rng: Random) -> Drawn:
    """Priorities and a cache that is too small for all that run."""
    return Setup(**_tight(rng), policy=rng.choice(("fcfs", "priority")), budget=rng.choice((8, 32))), Mix(
        priorities=3, own=(2, 16), answer=(6, 24), arrivals=0.5, eos=0.02, stop=0.02, shared=0.4
    )


def aborts(rng: Random) -> Drawn:
    """Clients leave in every state."""
    return Setup(**_tight(rng), policy=rng.choice(("fcfs", "priority")), stages=rng.choice((1, 2))), Mix(
        abort=0.3, priorities=2, answer=(2, 16), arrivals=0.6
    )


def drafts(rng: Random) -> Drawn:
    """Speculative decoding: n-gram drafts, or a drafting model's look-ahead; accepted, rejected and empty."""
    return Setup(
        **_tight(rng),
        drafts=rng.choice((1, 3)),
        look_ahead=rng.random() < 0.5,
        budget=rng.choice((8, 32)),
        log_stats=rng.random() < 0.3,
        policy=rng.choice(("fcfs", "priority")),
    ), Mix(answer=(4, 24), priorities=2)


def grammar(rng: Random) -> Drawn:
    """Structured output: compiled at once or late; with drafts."""
    spec = rng.choice((0, 2))
    return Setup(blocks=rng.choice((20, 40)), drafts=spec), Mix(grammar=0.5, abort=0.1)


def encoder(rng: Random) -> Drawn:
    """Images under an encoder budget and cache; images in one piece or in chunks; encoder-decoder models."""
    kind = rng.choice(("decoder-only", "decoder-only", "encoder-decoder"))
    return Setup(
        encoder=kind,
        caching=kind == "decoder-only",
        encoder_tokens=rng.choice((4, 6, 10)) if kind == "decoder-only" else rng.choice((4, 8)),
        whole_images=rng.random() < 0.4,
        slots=4,
        budget=rng.choice((7, 12, 40)),
        blocks=rng.choice((20, 40)),
        policy=rng.choice(("fcfs", "priority")),
    ), Mix(images=0.7, priorities=2, own=(14, 24), shared=0.0, reset_running=0.03)


def encoder_transfer(rng: Random) -> Drawn:
    """The encoder connector has some of the images."""
    return Setup(
        encoder="decoder-only",
        encoder_connector=True,
        encoder_tokens=rng.choice((4, 6, 10)),
        slots=4,
        budget=rng.choice((7, 12, 40)),
        blocks=rng.choice((20, 40)),
    ), Mix(images=0.7, remote_images=0.6, own=(14, 24), shared=0.0)


def adapters(rng: Random) -> Drawn:
    """More LoRA adapters than fit a batch."""
    return Setup(adapters=rng.choice((1, 2)), blocks=rng.choice((20, 40))), Mix(adapters=3)


def pooling(rng: Random) -> Drawn:
    """Requests whose output is one vector."""
    return Setup(budget=rng.choice((8, 32)), blocks=rng.choice((20, 40))), Mix(pooling=0.6)


def stops(rng: Random) -> Drawn:
    """End token, stop tokens, length, the model's length, a least length."""
    return Setup(model_length=rng.choice((16, 24, 48)), drafts=rng.choice((0, 0, 3))), Mix(
        eos=0.5, stop=0.5, min_answer=0.4, ignore_eos=0.3, answer=(1, 40), own=(1, 14)
    )


def loads(rng: Random) -> Drawn:
    """A KV connector brings prompt tokens during the step; undecided matches; delayed frees."""
    return Setup(
        connector=True, blocks=rng.choice((24, 48)), budget=rng.choice((12, 32)), log_stats=rng.random() < 0.3
    ), Mix(match=0.6, between=0.0, hold=0.3, own=(2, 20))


def loads_between(rng: Random) -> Drawn:
    """A KV connector brings prompt tokens between the steps."""
    return Setup(
        connector=True,
        blocks=rng.choice((48, 64)),
        budget=rng.choice((12, 32)),
        policy=rng.choice(("fcfs", "priority")),
    ), Mix(match=0.6, between=0.7, hold=0.3, own=(2, 20), priorities=2, abort=0.08, abort_loading=0.5)


def load_failures(rng: Random) -> Drawn:
    """Blocks of a load are invalid: computed again, or the request fails."""
    return Setup(
        connector=True, blocks=rng.choice((40, 64)), load_failures=rng.choice(("recompute", "fail"))
    ), Mix(match=0.7, between=0.5, broken=0.15, own=(4, 20), shared=0.4, hold=0.1)


def resets(rng: Random) -> Drawn:
    """The prefix cache is reset, with and without preempting what runs."""
    return Setup(blocks=rng.choice((24, 48)), connector=rng.random() < 0.3), Mix(
        reset=0.15, reset_running=0.06, shared=0.6, own=(1, 10)
    )


def pipeline(rng: Random) -> Drawn:
    """Pipeline parallelism: several steps in flight."""
    return Setup(**_tight(rng), stages=rng.choice((2, 3)), policy=rng.choice(("fcfs", "priority"))), Mix(
        answer=(2, 16), priorities=2
    )


def asynchronous(rng: Random) -> Drawn:
    """Asynchronous scheduling: one step ahead of the outputs."""
    return Setup(
        asynchronous=True,
        blocks=rng.choice((24, 48)),
        budget=rng.choice((12, 32)),
        policy=rng.choice(("fcfs", "priority")),
    ), Mix(answer=(1, 16), priorities=2)


def asynchronous_drafts(rng: Random) -> Drawn:
    """The same with drafts and grammar."""
    return Setup(asynchronous=True, blocks=64, drafts=rng.choice((0, 1, 3))), Mix(
        answer=(1, 16), grammar=rng.choice((0.0, 0.3))
    )


def clients(rng: Random) -> Drawn:
    """Several clients, with the sets of finished requests."""
    return Setup(finished_sets=True, log_stats=rng.random() < 0.5), Mix(clients=3, abort=0.1)


def second_runner(rng: Random) -> Drawn:
    """Outputs for the second model runner."""
    return Setup(**_tight(rng), second_runner=True), Mix(answer=(4, 20), arrivals=0.5)


def statistics(rng: Random) -> Drawn:
    """Statistics, request events and cache events."""
    return Setup(
        **_tight(rng), log_stats=True, events=True, drafts=rng.choice((0, 2, 2)), connector=rng.random() < 0.3
    ), Mix(shared=0.6, own=(1, 12), match=0.3, between=0.0)


def outputs(rng: Random) -> Drawn:
    """Log probabilities of prompts and answers, NaN counts, graph and connector statistics, connector events."""
    return Setup(
        log_stats=True,
        events=rng.random() < 0.5,
        connector=rng.random() < 0.7,
        drafts=rng.choice((0, 0, 2)),
        blocks=rng.choice((20, 48)),
    ), Mix(logprobs=0.6, match=0.3, hold=0.2, between=0.3)


def hybrid(rng: Random) -> Drawn:
    """Two cache groups: full attention and a sliding window."""
    return Setup(window=rng.choice((1, 2, 4)), blocks=rng.choice((30, 60)), budget=rng.choice((8, 32))), Mix(
        shared=0.6, own=(1, 20), answer=(1, 24)
    )


def _ahead(group: Group) -> Group:
    """The same requests and events, each step planned before the last one's tokens are known."""

    def drawn(rng: Random) -> Drawn:
        setup, mix = group(rng)
        return replace(setup, asynchronous=True, stages=1), mix

    return drawn


_SYNCHRONOUS: tuple[Group, ...] = (
    mixed,
    sharing,
    chunking,
    preemption,
    aborts,
    drafts,
    grammar,
    encoder,
    encoder_transfer,
    adapters,
    pooling,
    stops,
    loads,
    loads_between,
    load_failures,
    resets,
    clients,
    second_runner,
    statistics,
    outputs,
    hybrid,
)
_OTHERS: tuple[Group, ...] = (pipeline, asynchronous, asynchronous_drafts)


def _name(group: Group) -> str:
    return group.__name__.replace("_", "-")


GROUPS: Mapping[str, Group] = {_name(group): group for group in (*_SYNCHRONOUS, *_OTHERS)} | {
    f"{_name(group)}{AHEAD}": _ahead(group) for group in _SYNCHRONOUS
}
"""By name; what ends in `-ahead` is scheduled asynchronously. Over several stages nothing is: vLLM does not do it either."""
