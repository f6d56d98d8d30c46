"""Plays a mix: draws the next event from a seed and from what the reference shows, and writes it down.

What is written down no longer depends on the drawing: the list of events is the case.
"""

from __future__ import annotations

from random import Random

from tests.differential.groups import Mix
from tests.differential.pair import Pair
from tests.differential.settings import (
    Abort,
    Add,
    Answer,
    Broken,
    Event,
    Grammar,
    Received,
    Reset,
    Sent,
    Setup,
    Step,
)

IMAGE_TOKENS = 4


class Generator:
    """The environment's choices."""

    def __init__(self, rng: Random, setup: Setup, mix: Mix) -> None:
        self.rng, self.setup, self.mix = rng, setup, mix
        self.count = 0
        self.late: list[str] = []

    def play(self, pair: Pair, steps: int) -> tuple[Event, ...]:
        """Play until so many steps were scheduled or nothing can be compared any more; the events."""
        events: list[Event] = []
        while pair.steps < steps and not pair.over():
            for event in self._turn(pair):
                events.append(event)
                pair.apply(event)
                if pair.over():
                    break
        return tuple(events)

    def chance(self, probability: float) -> bool:
        """Whether it happens this time."""
        return self.rng.random() < probability

    def _turn(self, pair: Pair) -> list[Event]:
        events = [*self._from_clients(pair), *self._from_connector(pair)]
        ready = len(pair.flights)
        if ready < self.setup.depth and (not ready or self.chance(0.7)):
            events.append(Step())
            if self.mix.broken and self.chance(0.5):  # time for a load of this step to fail
                return events
            if ready + 1 == self.setup.depth or self.chance(0.3):
                events += self._aborts(pair) if self.chance(0.3) else []
                events.append(Answer(self.rng.randrange(12)))
        else:
            events.append(Answer(self.rng.randrange(12)))
        return events

    def _from_clients(self, pair: Pair) -> list[Event]:
        events: list[Event] = []
        requests = pair.reference.scheduler.requests
        if len(requests) < self.mix.live and (not requests or self.chance(self.mix.arrivals)):
            for _ in range(self.rng.randint(1, self.mix.burst)):
                events += self._arrival()
        events += self._aborts(pair)
        for rid in [rid for rid in self.late if self.chance(0.4)]:
            self.late.remove(rid)
            events.append(Grammar(rid, failed=self.chance(self.mix.grammar_failed)))
        if self.chance(self.mix.reset):
            events.append(Reset(connector=self.setup.connector and self.chance(0.5)))
        if self.chance(self.mix.reset_running) and not pair.loading and not pair.holding:
            events.append(Reset(running=True))
        return events

    def _aborts(self, pair: Pair) -> list[Event]:
        if not self.chance(self.mix.abort):
            return []
        loading = {load.rid for load in pair.loading}
        careful = not self.chance(self.mix.abort_loading)
        live = [rid for rid in pair.reference.scheduler.requests if not (careful and rid in loading)]
        if not live:
            return []
        return [Abort(tuple(sorted(self.rng.sample(live, min(len(live), self.rng.choice((1, 1, 1, 2)))))))]

    def _from_connector(self, pair: Pair) -> list[Event]:
        events: list[Event] = []
        for load in pair.loading:
            if self.chance(self.mix.broken):
                events.append(Broken(load.rid, self.rng.randrange(4)))
            if self.chance(0.4):
                events.append(Received(load.rid))
        for flight in pair.flights:
            events += [
                Broken(load.rid, self.rng.randrange(4))
                for load in flight.loads
                if self.chance(self.mix.broken)
            ]
        events += [Sent(rid) for rid in pair.holding if self.chance(0.3)]
        return events

    def _arrival(self) -> list[Event]:
        rng, mix, setup = self.rng, self.mix, self.setup
        rid = f"r{self.count}"
        self.count += 1
        room = min(setup.model_length, (setup.blocks - 2) * setup.block_size) - 1
        if not setup.chunked:
            room = min(room, setup.budget)
        images = rng.randint(1, 3) if setup.encoder and self.chance(mix.images) else 0
        if setup.encoder == "encoder-decoder":
            images = min(images, 1)
        shared = rng.randrange(1, 5 * setup.block_size) if self.chance(mix.shared) else 0
        own = max(rng.randint(*mix.own), 1 + images * IMAGE_TOKENS, 0 if shared else 1)
        shared = min(shared, max(0, room - own))
        own = min(own, room)
        answer = rng.randint(*mix.answer)
        if room - own - shared < answer and setup.model_length > room + 1:
            answer = max(1, room - own - shared)
        pooling = self.chance(mix.pooling)
        grammar = not pooling and self.chance(mix.grammar)
        match = rng.randrange(1, own + shared + 1) if setup.connector and self.chance(mix.match) else 0
        add = Add(
            rid=rid,
            own=own,
            shared=shared,
            family=rng.randrange(mix.families),
            answer=answer,
            eos=rng.randrange(answer) if self.chance(mix.eos) else -1,
            stop=rng.randrange(answer) if self.chance(mix.stop) else -1,
            min_answer=rng.randint(1, answer) if self.chance(mix.min_answer) else 0,
            ignore_eos=self.chance(mix.ignore_eos),
            priority=rng.randrange(mix.priorities),
            arrival=self.count // 2,
            client=rng.randrange(mix.clients),
            salt="salt" if self.chance(mix.salt) else "",
            skip_cache=self.chance(mix.skip_cache),
            grammar=grammar,
            refuses=rng.randrange(answer) if grammar and self.chance(mix.refuses) else -1,
            pooling=pooling,
            adapter=rng.randint(1, mix.adapters) if mix.adapters and self.chance(0.7) else 0,
            images=images,
            remote_images=rng.randint(1, images) if images and self.chance(mix.remote_images) else 0,
            picture=rng.randrange(3) if images else 0,
            match=match,
            between=bool(match) and self.chance(mix.between),
            undecided=rng.randint(1, 3) if setup.connector and self.chance(mix.undecided) else 0,
            rematch=self.chance(mix.rematch),
            hold=setup.connector and self.chance(mix.hold),
            logprobs=not pooling and self.chance(mix.logprobs),
        )
        if grammar and self.chance(mix.grammar_late):
            self.late.append(rid)
            return [add]
        return [add, Grammar(rid)] if grammar else [add]
