"""What two runs of the same requests have to have in common."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

#: The classes under test; another pair, `SYNC,ASYNC`, can be put in their place.
OURS = os.environ.get(
    "VLLM_LIFECYCLE_CANDIDATE",
    "vllm_lifecycle.adapters.vllm.VerifiedScheduler,vllm_lifecycle.adapters.vllm.VerifiedAsyncScheduler",
)

#: Rounding moves a log probability by less than a millionth; a choice made by more than this is the same in any batch.
NEAR_TIE = 1e-5

Outcomes = Mapping[str, Mapping[str, Any]]


def differences(reference: Outcomes, other: Outcomes, overlapped: bool = False) -> Iterator[str]:
    """One line for each request whose outcomes are not equal: tokens, text, reasons, and tokens found in the prefix cache.

    With a step in flight the last may differ: our class gives the blocks of a request that left back when that step has been
    answered, vLLM's at once, so under pressure other blocks are evicted.
    """
    ignored = {"margin", "cached"} if overlapped else {"margin"}
    for name in sorted(reference.keys() | other.keys()):
        mine, its = reference.get(name), other.get(name)
        if mine is None or its is None:
            yield f"{name}: only in one of the runs"
        elif unequal := [key for key in mine if key not in ignored and mine[key] != its[key]]:
            yield f"{name}: " + "; ".join(f"{key}: {mine[key]!r} != {its[key]!r}" for key in unequal)


def contradictions(reference: Outcomes, other: Outcomes) -> Iterator[str]:
    """The same for runs whose clients leave when they happen to: then one's tokens begin the other's."""
    for name in sorted(reference.keys() | other.keys()):
        mine, its = reference[name], other[name]
        shared = min(len(mine["tokens"]), len(its["tokens"]))
        left = "left" in (mine["reason"], its["reason"])
        if mine["tokens"][:shared] != its["tokens"][:shared]:
            yield f"{name}: {mine['tokens']} != {its['tokens']}"
        elif not left and (mine["tokens"], mine["reason"]) != (its["tokens"], its["reason"]):
            yield f"{name}: {mine['reason']} after {mine['tokens']} != {its['reason']} after {its['tokens']}"


def nearest_tie(outcomes: Outcomes) -> float:
    """The least margin by which any greedy token of the run was chosen."""
    return min(float(outcome["margin"]) for outcome in outcomes.values() if outcome["margin"] is not None)
