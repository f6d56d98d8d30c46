"""Discharging many obligations on two cores: worker processes that each hold the theory.

Workers are spawned (a fork would copy threads of the caller), get the pickled machine once, and take obligations by number.
A machine that cannot be pickled (enum classes defined inside a function) is proved in this process alone.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vllm_lifecycle.spec.check.induction.obligations import Obligation
from vllm_lifecycle.spec.check.induction.prover import Prover, Result
from vllm_lifecycle.spec.check.induction.theory import Theory

CHUNK = 24
FEW = 150

_prover: Prover | None = None


def discharge_all(
    prover: Prover,
    obligations: Sequence[Obligation],
    jobs: int,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Result]:
    """Results of some obligations of the prover's theory, in any order."""
    numbers = {id(o): i for i, o in enumerate(prover.theory.obligations)}
    frame = [o for o in obligations if o.frame]
    # By action: a solver keeps what the obligations about one action have in common.
    asked = sorted((o for o in obligations if not o.frame), key=lambda o: o.action or "")
    done = 0
    for result in (prover.discharge(o) for o in frame):
        done += 1
        yield result
    parcel = _parcel(prover) if jobs > 1 and len(asked) >= FEW else None
    source = (
        (prover.discharge(o) for o in asked)
        if parcel is None
        else _spread(parcel, [numbers[id(o)] for o in asked], jobs)
    )
    for result in source:
        done += 1
        if progress is not None:
            progress(done, len(obligations))
        yield result


def _parcel(prover: Prover) -> bytes | None:
    options: dict[str, Any] = {
        "seeds": prover.seeds,
        "timeout_ms": prover.timeout_ms,
        "minimal_cores": prover.minimal_cores,
    }
    try:
        return pickle.dumps((prover.theory.machine, prover.theory.rankings, options))
    except (pickle.PicklingError, AttributeError):
        return None


def _spread(parcel: bytes, numbers: list[int], jobs: int) -> Iterator[Result]:
    chunks = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]
    with multiprocessing.get_context("spawn").Pool(jobs, _open, (parcel,)) as pool:
        for results in pool.imap_unordered(_work, chunks):
            yield from results


def _open(parcel: bytes) -> None:
    global _prover
    machine, rankings, options = pickle.loads(parcel)
    _prover = Prover(Theory(machine, rankings), **options)


def _work(numbers: list[int]) -> list[Result]:
    assert _prover is not None
    return [_prover.discharge(_prover.theory.obligations[n]) for n in numbers]
