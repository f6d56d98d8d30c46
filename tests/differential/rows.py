"""Differences that are intended: each row names the defect of the original that justifies it.

A row explains a divergence as a whole, from the differences and from what has happened in the pair; the first row that does so
is counted.  What no row explains is a failure.  `defect` is a row of docs/corpus.md, or says in words what the original does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.differential.pair import Pair
from tests.differential.plain import Difference


@dataclass(frozen=True)
class Row:
    """A named intended difference."""

    name: str
    defect: str
    explains: Callable[[str, Sequence[Difference], Pair], bool]
    """From the name of the call, the differences and the pair, which has stopped there."""


def _original_raises(kind: str, function: str) -> Callable[[str, Sequence[Difference], Pair], bool]:
    """The original raises this out of the call, from that function, and ours does not."""

    def explains(call: str, found: Sequence[Difference], pair: Pair) -> bool:
        raised = [d for d in found if d.path == "raised"]
        trace = pair.reference.trace
        return (
            bool(raised)
            and raised[0].reference == kind
            and f" {function}:" in trace
            and not pair.sides[1].trace
        )

    return explains


def _in_flight_gives_way(call: str, found: Sequence[Difference], pair: Pair) -> bool:
    """The original preempts a request whose blocks a step in flight still touches, and ours leaves it running."""
    theirs, ours = (side.result for side in pair.sides)
    if call != "schedule" or theirs is None or ours is None:
        return False
    gone = theirs.preempted_req_ids - ours.preempted_req_ids
    return any(rid in flight.tokens for flight in pair.flights for rid in gone)


def _least_length_beyond_the_model(call: str, found: Sequence[Difference], pair: Pair) -> bool:
    """The original keeps a request that fills the model's length because it has not its least length; ours ends it."""
    longest = pair.setup.model_length
    return call == "update_from_output" and any(
        request.num_tokens >= longest and request.num_output_tokens < request.sampling_params.min_tokens
        for request in pair.reference.scheduler.running
        if request.sampling_params is not None
    )


def _goes_on_after_a_preemption(call: str, found: Sequence[Difference], pair: Pair) -> bool:
    """The original ends the pass when a request preempts itself; ours serves those who run behind it, or they give way too."""
    theirs, ours = (side.result for side in pair.sides)
    if call != "schedule" or theirs is None or ours is None or pair.setup.policy != "priority":
        return False
    served, more = theirs.num_scheduled_tokens.items(), ours.num_scheduled_tokens.items()
    gone, others = theirs.preempted_req_ids, ours.preempted_req_ids
    return bool(gone) and served <= more and gone <= others and (served < more or gone < others)


def _step_reads_the_entry(call: str, found: Sequence[Difference], pair: Pair) -> bool:
    """The original may evict what an aborted request's step in flight still reads; ours gives it back at the answer, so later."""
    evicted = all(d.path.startswith("returned.free_encoder_mm_hashes") for d in found)
    with_images = any(pair.adds[rid].images for rid in pair.left_in_flight)
    return call == "schedule" and evicted and with_images


def _without_blocks(call: str, found: Sequence[Difference], pair: Pair) -> bool:
    """The original leaves who lost its blocks (nothing of its load came) among those that hold some; the order is the same."""
    if {d.path for d in found} != {"waiting", "kv_holding_waiting"}:
        return False
    blockless = [
        request.num_computed_tokens == 0
        for request in pair.reference.scheduler.kv_holding_waiting
        if request.status.name in ("WAITING", "PREEMPTED")
    ]
    return bool(blockless) and all(blockless)


ROWS: tuple[Row, ...] = (
    Row("a pass goes on after a preemption", "VLLM-26765", _goes_on_after_a_preemption),
    Row("a step in flight keeps its blocks: who is in it gives nothing", "VLLM-45357", _in_flight_gives_way),
    Row(
        "who holds no blocks waits with those who hold none",
        "Scheduler._holds_kv_blocks of 0.32.0",
        _without_blocks,
    ),
    Row("a step in flight keeps the encoder entries that it reads", "VLLM-45347", _step_reads_the_entry),
    Row(
        "the model's length ends a request below its least length",
        "the next pass schedules -1 tokens",
        _least_length_beyond_the_model,
    ),
)
"""In the order in which they are asked. What a mend removes (mended.py) needs no row."""


def explained(call: str, found: Sequence[Difference], pair: Pair) -> Row | None:
    """The first row that explains the divergence; None when none does."""
    return next((row for row in ROWS if row.explains(call, found, pair)), None)
