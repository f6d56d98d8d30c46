"""The whole specification: every module, every lifecycle, every property, sealed.

The successor lists below are written down independently of the actions; sealing compares the two.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lifecycles import chunks, encoder, requests, scheduling, steps, transfers
from vllm_lifecycle.spec.lifecycles.vocabulary import FINISHED, Flight, Kind, Phase, Status, Transfer, spec
from vllm_lifecycle.spec.properties import contract, counters, custody, progress, queues
from vllm_lifecycle.spec.properties import steps as step_properties
from vllm_lifecycle.spec.properties import transfers as transfer_properties

DEFINITIONS = (
    requests,
    scheduling,
    steps,
    transfers,
    chunks,
    encoder,
    custody,
    transfer_properties,
    queues,
    step_properties,
    counters,
    contract,
    progress,
)
"""The modules whose import adds the rows; listed so that the order is fixed."""

S = Status
_OUTPUT_ENDS = {
    S.FINISHED_STOPPED,
    S.FINISHED_LENGTH_CAPPED,
    S.FINISHED_REPETITION,
    S.WAITING_FOR_TRANSFER_FREE,
}
_ABORTED = {S.FINISHED_ABORTED, S.WAITING_FOR_TRANSFER_FREE}

spec.lifecycle(
    "request",
    "status",
    {
        S.FREED: {S.WAITING, S.WAITING_FOR_GRAMMAR, S.FINISHED_IGNORED},
        S.WAITING_FOR_GRAMMAR: {S.WAITING, S.FINISHED_ERROR, *_ABORTED},
        S.WAITING: {S.RUNNING, S.WAITING_FOR_REMOTE_KVS, S.WAITING_FOR_CHUNK, *_ABORTED},
        S.WAITING_FOR_REMOTE_KVS: {S.WAITING, S.PREEMPTED, S.FINISHED_ERROR, *_ABORTED},
        S.WAITING_FOR_CHUNK: {S.WAITING, S.RUNNING, S.FINISHED_ERROR, *_OUTPUT_ENDS, *_ABORTED},
        S.WAITING_FOR_STREAMING_REQ: {S.WAITING, S.FINISHED_STOPPED, *_ABORTED},
        S.RUNNING: {
            S.PREEMPTED,
            S.WAITING_FOR_CHUNK,
            S.WAITING_FOR_STREAMING_REQ,
            S.FINISHED_ERROR,
            *_OUTPUT_ENDS,
            *_ABORTED,
        },
        S.PREEMPTED: {
            S.RUNNING,
            S.WAITING_FOR_REMOTE_KVS,
            S.WAITING_FOR_STREAMING_REQ,
            *_OUTPUT_ENDS,
            *_ABORTED,
        },
        **{reason: {S.FREED} for reason in (*FINISHED, S.WAITING_FOR_TRANSFER_FREE)},
    },
    doc="A request id from one owner to the next.",
)
spec.lifecycle(
    "receive",
    "transfer",
    {
        Transfer.NONE: {Transfer.ACTIVE},
        Transfer.ACTIVE: {Transfer.DONE, Transfer.FAILED, Transfer.NONE, Transfer.LOST},
        Transfer.LOST: {Transfer.DONE, Transfer.NONE},
        Transfer.DONE: {Transfer.NONE},
        Transfer.FAILED: {Transfer.NONE},
    },
    index=(None, Kind.RECEIVE),
    doc="A remote writer fills the blocks of a request that waits for them.",
)
spec.lifecycle(
    "send",
    "transfer",
    {
        Transfer.NONE: {Transfer.ACTIVE},
        Transfer.ACTIVE: {Transfer.NONE, Transfer.LOST},
        Transfer.LOST: {Transfer.NONE},
    },
    index=(None, Kind.SEND),
    doc="A remote reader copies the blocks of a request that has finished.",
)
spec.lifecycle(
    "handoff",
    "transfer",
    {
        Transfer.NONE: {Transfer.NEEDED},
        Transfer.NEEDED: {Transfer.ACTIVE, Transfer.NONE},
        Transfer.ACTIVE: {Transfer.NONE, Transfer.LOST},
        Transfer.LOST: {Transfer.NONE},
    },
    index=(None, Kind.HANDOFF),
    doc="A later stage is handed a snapshot of a request's blocks, while it runs or after it finished.",
)
spec.lifecycle(
    "step",
    "flight",
    {
        Flight.IDLE: {Flight.BUILDING},
        Flight.BUILDING: {Flight.DISPATCHED},
        Flight.DISPATCHED: {Flight.ANSWERED},
        Flight.ANSWERED: {Flight.IDLE},
    },
    doc="A model step from the pass that builds it to the processing of its output.",
)
spec.lifecycle(
    "call",
    "phase",
    {
        Phase.BETWEEN_CALLS: {Phase.SCHEDULING, Phase.UPDATING, Phase.RESETTING},
        Phase.SCHEDULING: {Phase.BETWEEN_CALLS},
        Phase.UPDATING: {Phase.BETWEEN_CALLS},
        Phase.RESETTING: {Phase.BETWEEN_CALLS},
    },
    doc="Calls into the scheduler do not overlap.",
)

SYSTEM: Machine = spec.seal()
"""The sealed specification."""
