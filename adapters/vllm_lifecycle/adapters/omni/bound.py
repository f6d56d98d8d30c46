"""The variables of the specification that vllm-omni keeps beyond vLLM's, as functions of an observed state.

The once-mark of a request that is held for its hand-off stays until the acknowledgement; it is bound to live requests and
to ids that no request has, where it is a leak.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from vllm_lifecycle.adapters.vllm.binding import Observed
from vllm_lifecycle.adapters.vllm.worker import BAD_ENDS
from vllm_lifecycle.spec.lang.sparse import Cells

from .chunks import Chunks
from .seams import Seams


@runtime_checkable
class _Keeps(Protocol):
    seams: Seams
    chunks: Chunks | None


def _omni(o: Observed) -> _Keeps:
    found = o.driver.extension
    assert isinstance(found, _Keeps)
    return found


def triggered(o: Observed) -> Cells:
    """The once-marks, without those of held requests."""
    return {(rid,): True for rid in _omni(o).seams.get("triggered once") if rid not in o.held}


def handoffs(o: Observed) -> Cells:
    """Hand-offs of the present incarnations."""
    return {(x.rid,): min(2, x.handoffs) for x in o.truth.lives.values() if x.handoffs}


def ended_badly(o: Observed) -> Cells:
    """Held requests that were aborted or failed."""
    return {(rid,): True for rid, r in o.held.items() if r.status in BAD_ENDS}


def parked_running(o: Observed) -> Cells:
    """Requests that wait for a chunk in the running list."""
    return {
        (rid,): True for rid, r in o.live.items() if r.status == "WAITING_FOR_CHUNK" and "running" in r.queues
    }


def polled(o: Observed) -> Cells:
    """Ids that the adapter polls for."""
    chunks = _omni(o).chunks
    return {(rid,): True for rid in chunks.polled()} if chunks else {}


def chunk_ready(o: Observed) -> Cells:
    """Ids with a chunk that was not consumed."""
    chunks = _omni(o).chunks
    return {(rid,): True for rid in chunks.ready()} if chunks else {}


BOUND = {f.__name__: f for f in (triggered, handoffs, ended_badly, parked_running, polled, chunk_ready)}
