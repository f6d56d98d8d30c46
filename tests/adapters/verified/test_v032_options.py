"""What 0.32.0 can be configured with beyond 0.13.0: the same random workloads as the differential test, option by option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("vllm.v1.core.sched.diffusion_scheduler", reason="only 0.32.0 has it")

import tests.differential.pair as pairs
from tests.differential.build import Factory
from tests.differential.generate import Generator
from tests.differential.groups import Mix
from tests.differential.mended032 import AsyncScheduler, Scheduler
from tests.differential.pair import Pair
from tests.differential.plain import plain
from tests.differential.settings import Setup, Step
from vllm.v1.core.sched.interface import PauseState

from vllm_lifecycle.adapters.vllm.verified import VerifiedScheduler

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
STEPS = 240
TIGHT = Setup(blocks=18, slots=6, budget=16)
BUSY = Mix(own=(2, 24), answer=(2, 16), shared=0.4, arrivals=0.6, priorities=3)


class Option:
    """A change of the configuration, the setup that it is tried with, and whether it must make a difference."""

    def __init__(self, change: Callable[[Any], None], setup: Setup = TIGHT, mix: Mix = BUSY) -> None:
        self.change, self.setup, self.mix = change, setup, mix


def scheduler(**values: Any) -> Callable[[Any], None]:
    """Sets fields of the scheduler's configuration."""

    def change(config: Any) -> None:
        for name, value in values.items():
            setattr(config.scheduler_config, name, value)

    return change


def drafting(method: str) -> Callable[[Any], None]:
    """Drafts come from this method; none is loaded."""
    return lambda config: object.__setattr__(config.speculative_config, "method", method)


OPTIONS = {
    "watermark": Option(scheduler(watermark=0.2)),
    "chunks are admitted without the rest": Option(scheduler(scheduler_reserve_full_isl=False)),
    "fewer tokens than inputs": Option(scheduler(max_num_scheduled_tokens=9)),
    "fewer active than slots": Option(scheduler(max_num_active_seqs=3)),
    "adaptive threshold": Option(
        scheduler(long_prefill_token_threshold=3, long_prefill_token_threshold_adaptive=True)
    ),
    "threshold": Option(
        scheduler(long_prefill_token_threshold=3), mix=Mix(arrivals=0.15, burst=1, own=(8, 30))
    ),
    "drafting model": Option(drafting("draft_model"), Setup(blocks=24, slots=6, budget=16, drafts=3)),
    "drafts under priorities": Option(
        scheduler(policy="priority"), Setup(blocks=18, slots=6, budget=12, drafts=2, policy="priority")
    ),
    "watermark and loads": Option(
        scheduler(watermark=0.1),
        Setup(blocks=40, slots=6, budget=16, connector=True),
        Mix(match=0.6, between=0.7, hold=0.3, own=(2, 24), priorities=2),
    ),
    "windows, one step ahead": Option(
        lambda config: None, Setup(blocks=40, slots=6, budget=12, window=2, asynchronous=True)
    ),
    "windows and drafts": Option(
        lambda config: None, Setup(blocks=40, slots=6, budget=12, window=2, drafts=2)
    ),
    "windows and drafts, one step ahead": Option(
        lambda config: None, Setup(blocks=60, slots=6, budget=12, window=2, drafts=2, asynchronous=True)
    ),
}


@pytest.fixture
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Pair]]:
    """Makes fresh pairs of the option that the test is for."""
    option: Option = request.param

    class Changed(Factory):
        def _config(self) -> Any:
            config = super()._config()
            option.change(config)
            return config

    made = Changed(option.setup)
    monkeypatch.setattr(pairs, "factory", lambda setup: made)
    reference = AsyncScheduler if option.setup.asynchronous else Scheduler
    yield lambda: Pair(reference, VerifiedScheduler, option.setup)


def play(make: Callable[[], Pair], option: Option, steps: int = STEPS) -> None:
    done = number = 0
    while done < steps:
        pair = make()
        Generator(Random(f"option {number}"), option.setup, option.mix).play(pair, 80)
        assert pair.divergence is None, pair.divergence
        done, number = done + pair.steps, number + 1


@pytest.mark.parametrize(
    ("pair", "option"), [(o, o) for o in OPTIONS.values()], ids=list(OPTIONS), indirect=["pair"]
)
def test_decisions_are_the_originals_under_the_option(pair: Callable[[], Pair], option: Option) -> None:
    play(pair, option)


PAUSED = Option(
    lambda config: None,
    Setup(blocks=40, slots=6, budget=16, connector=True),
    Mix(match=0.5, between=0.6, own=(2, 20), arrivals=0.6),
)


@pytest.mark.parametrize(("pair", "option"), [(PAUSED, PAUSED)], ids=["loads"], indirect=["pair"])
def test_pauses_leave_what_the_originals_leave(pair: Callable[[], Pair], option: Option) -> None:
    rng, states = Random(3), list(PauseState)
    seen = set()
    for number in range(6):
        both = pair()
        generator = Generator(Random(f"pause {number}"), option.setup, option.mix)
        while both.steps < 60 and not both.over():
            for event in generator._turn(both):
                both.apply(event)
                if both.over():
                    break
            if rng.random() < 0.3 and not both.over():
                state = rng.choice(states)
                seen.add(state)
                both._both("set_pause_state", (state,), (state,))
        assert both.divergence is None, both.divergence
    assert seen == set(states)


DRAFTED = Option(
    lambda config: None,
    Setup(blocks=64, slots=6, budget=32, drafts=3, asynchronous=True),
    Mix(grammar=0.6, grammar_late=0.2, answer=(4, 16)),
)


@pytest.mark.parametrize(("pair", "option"), [(DRAFTED, DRAFTED)], ids=["grammar"], indirect=["pair"])
def test_drafts_of_a_step_in_flight_are_held_against_grammars(
    pair: Callable[[], Pair], option: Option
) -> None:
    filled = 0
    for number in range(4):
        both = pair()
        generator = Generator(Random(f"drafts {number}"), option.setup, option.mix)
        while both.steps < 60 and not both.over():
            for event in generator._turn(both):
                both.apply(event)
                if isinstance(event, Step) and both.flights and not both.over():
                    flight = both.flights[-1]
                    args = [
                        (
                            both.factory.drafts(
                                list(flight.drafts), [[300, 301, 302] for _ in flight.drafts]
                            ),
                            out,
                        )
                        for out in flight.outputs
                    ]
                    both._both("update_draft_token_ids_in_output", *args)
                    first, second = flight.outputs
                    assert first.scheduled_spec_decode_tokens == second.scheduled_spec_decode_tokens
                    assert first.num_invalid_spec_tokens == second.num_invalid_spec_tokens
                    flight.told = plain(first)
                    filled += bool(first.num_invalid_spec_tokens)
                if both.over():
                    break
        assert both.divergence is None, both.divergence
    assert filled
