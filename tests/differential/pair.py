"""Two schedulers side by side: each event happens to both, and everything that can be observed afterwards is compared.

The environment (worker, connectors, clients) is played from the reference's outputs alone; as long as the two agree they are
everybody's outputs.  At the first difference the pair stops: two schedulers that have diverged cannot be brought back together.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tests.differential.build import factory
from tests.differential.connectors import Load
from tests.differential.grammar import ScriptedGrammar
from tests.differential.plain import Difference, differences, plain
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
from tests.differential.side import Side
from tests.differential.witnesses import of_outputs, of_step
from tests.differential.worker import Flight, Worker


@dataclass(frozen=True)
class Divergence:
    """The first point at which the two sides differ."""

    event: int
    call: str
    differences: tuple[Difference, ...]


class Pair(Worker):
    """Both sides, the environment, and how far they have come."""

    made_by = staticmethod(factory)

    def __init__(self, reference: type[Any], ours: type[Any], setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.factory = self.made_by(setup)
        self.sides = (Side(reference, self.factory), Side(ours, self.factory))
        self.adds: dict[str, Add] = {}
        self.flights: list[Flight] = []
        self.holding: list[str] = []
        self.compiling: set[str] = set()
        self.applied = 0
        self.divergence: Divergence | None = None
        self.ended = ""
        """Why the run cannot go on although nothing differs: both raised."""
        self.fresh: tuple[Load, ...] = ()
        """Loads that the last call started for the next step to do itself."""

    def run(self, events: tuple[Event, ...]) -> Divergence | None:
        """Apply events up to the first difference."""
        for event in events:
            self.apply(event)
            if self.over():
                break
        return self.divergence

    def over(self) -> bool:
        """Whether nothing more can be compared."""
        return bool(self.divergence or self.ended)

    def apply(self, event: Event) -> None:
        """Make one event happen to both sides, and compare."""
        self.applied += 1
        match event:
            case Add():
                self._add(event)
            case Step():
                self._step()
            case Answer():
                self._answer(event)
            case Abort():
                self._abort(event)
            case Received(rid):
                if any(load.rid == rid for load in self.loading):
                    self.loading = [load for load in self.loading if load.rid != rid]
                    self.received.append(rid)
            case Sent(rid):
                if rid in self.holding:
                    self.holding.remove(rid)
                    self.sent.append(rid)
            case Broken(rid, block):
                self.broken[rid] = block
            case Grammar():
                self._grammar(event)
            case Reset():
                self.met["reset of what runs" if event.running else "reset"] += 1
                self._both("reset_prefix_cache", *(2 * ((event.running, event.connector),)))

    def _both(self, name: str, first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
        """Call the method on both sides and compare; False when the run is over."""
        seen = [side.call(name, *args) for side, args in zip(self.sides, (first, second), strict=True)]
        self.met["cache events"] += bool(seen[0].get("cache events"))
        self._compare(name, *seen)
        if "raised" in seen[0] and not self.divergence:
            self.ended = f"both raise {seen[0]['raised']} from {name}"
        started, held = self.reference.script.started, self.reference.script.held
        between = [load for load in started if load.between]
        self.loading += between
        self.holding += held
        heard = self.steps + (name != "schedule")
        self.heard |= dict.fromkeys((*(load.rid for load in between), *held), heard)
        self.fresh = tuple(load for load in started if not load.between)
        for side in self.sides:
            side.script.started, side.script.held = [], []
        return not self.over()

    def _compare(self, call: str, reference: Any, ours: Any) -> None:
        if "raised" in reference or "raised" in ours:
            reference, ours = ({"raised": seen.get("raised", "nothing")} for seen in (reference, ours))
        if reference != ours or not _same_order(reference, ours):
            found = tuple(differences(reference, ours))
            if found:
                self.divergence = Divergence(self.applied, call, found)

    def _add(self, add: Add) -> None:
        if add.rid in self.reference.scheduler.requests or add.rid in self.adds:
            return
        shared = self.factory.shared(add)
        self.adds[add.rid] = add
        for side in self.sides:
            side.script.adds[add.rid] = add
            if side.encoder_connector is not None:
                side.encoder_connector.adds[add.rid] = add
            side.requests[add.rid] = self.factory.request(add, shared)
        if add.grammar:
            self.compiling.add(add.rid)
        first, second = (side.requests[add.rid] for side in self.sides)
        self._both("add_request", (first,), (second,))

    def _abort(self, event: Abort) -> None:
        known = [rid for rid in event.rids if rid in self.adds]
        if not known:
            return
        loading = {load.rid for load in self.loading}
        self.met["aborted during a load"] += any(rid in loading for rid in known)
        self.met["aborted in flight"] += any(rid in f.tokens for f in self.flights for rid in known)
        ids: Any = known[0] if len(known) == 1 else known
        aborted = self.factory.status.FINISHED_ABORTED
        self._both("finish_requests", (ids, aborted), (ids, aborted))

    def _grammar(self, event: Grammar) -> None:
        if event.rid not in self.compiling:
            return
        self.compiling.discard(event.rid)
        for side in self.sides:
            future: Future[Any] = Future()
            if event.failed:
                future.set_exception(ValueError("no such grammar"))
            else:
                future.set_result(ScriptedGrammar(side.manager, self.adds[event.rid]))
            side.requests[event.rid].structured_output_request.grammar = future

    def _step(self) -> None:
        if len(self.flights) >= self.setup.depth:
            return
        self.steps += 1
        requests = self.reference.scheduler.requests
        known = {rid: r.num_tokens + r.num_output_placeholders for rid, r in requests.items()}
        if not self._both("schedule", (), ()):
            return
        outputs = (self.sides[0].result, self.sides[1].result)
        output: Any = outputs[0]
        tokens: dict[str, int] = dict(output.num_scheduled_tokens)
        drafts = {rid: len(ids) for rid, ids in output.scheduled_spec_decode_tokens.items()}
        start = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        ends = {rid: start[rid] + n - drafts.get(rid, 0) for rid, n in tokens.items()}
        self.flights.append(
            Flight(
                outputs=outputs,
                number=self.steps,
                told=plain(output),
                tokens=tokens,
                drafts=drafts,
                samples=frozenset(rid for rid, end in ends.items() if end >= known.get(rid, 0)),
                prompts=frozenset(
                    rid for rid, end in ends.items() if start[rid] < requests[rid].num_prompt_tokens <= end
                ),
                loads=self.fresh,
                adds={rid: self.adds[rid] for rid in tokens},
            )
        )
        self.met.update(of_step(output, self.adds))
        self.met["several in flight"] += len(self.flights) > 1
        if any(add.grammar for add in self.adds.values()):
            self._both("get_grammar_bitmask", (outputs[0],), (outputs[1],))

    def _answer(self, event: Answer) -> None:
        if not self.flights:
            return
        flight = self.flights.pop(0)
        self._compare("the step in flight", flight.told, plain(flight.outputs[1]))
        if self.over():
            return
        sampled = {rid: self._sampled(flight, rid, event.accept) for rid in flight.tokens}
        report = self._report(flight)
        args = [
            (output, self._reply(flight, {rid: t[:] for rid, t in sampled.items()}, report()))
            for output in flight.outputs
        ]
        if self._both("update_from_output", args[0], args[1]):
            self.met.update(of_outputs(self.reference.result))
            made = self._proposed(flight, event.accept) if self.setup.drafts else []
            if made:
                self._both("update_draft_token_ids", (made[0],), (made[1],))


def _same_order(reference: Any, ours: Any) -> bool:
    """Whether dictionaries that are equal also have one order."""
    if isinstance(reference, dict):
        return list(reference) == list(ours) and all(
            _same_order(a, b) for a, b in zip(reference.values(), ours.values(), strict=True)
        )
    if isinstance(reference, (list, tuple)):
        return all(_same_order(a, b) for a, b in zip(reference, ours, strict=True))
    return True
