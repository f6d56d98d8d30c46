"""The vocabulary: sorts, states and state variables that all lifecycles share.

One idea, custody: a block is in the free pool exactly when nobody holds it. Holders are the block tables of requests, the
transfers that read or write the block from outside, and the model steps in flight. Everything else (queues, token
counters, encoder entries, hand-offs) hangs on the same requests and steps, in modules that can be left out.

Ghosts record what is really going on in the world (which blocks a remote writer still touches, which incarnation a row
belongs to). Properties are judged against ghosts; a scheduler cannot read them.

`Request` is a request id. An id is reused by a later incarnation once it is FREED, so one individual lives many lives.
"""

from __future__ import annotations

from enum import Enum

from vllm_lifecycle.spec.lang.build import Individual
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import IntSort


class Request(Individual):
    """A request id; the request that has it changes from one incarnation to the next."""


class Block(Individual):
    """A KV-cache block of the pool."""


class Step(Individual):
    """A slot for a model step between `schedule()` and the processing of its output."""


class Entry(Individual):
    """An entry of the encoder cache."""


class Status(Enum):
    """Request states in vLLM's words; FREED = no request has this id, WAITING_FOR_TRANSFER_FREE = finished, custody remains."""

    FREED = "FREED"
    WAITING = "WAITING"
    WAITING_FOR_GRAMMAR = "WAITING_FOR_GRAMMAR"
    WAITING_FOR_REMOTE_KVS = "WAITING_FOR_REMOTE_KVS"
    WAITING_FOR_STREAMING_REQ = "WAITING_FOR_STREAMING_REQ"
    WAITING_FOR_CHUNK = "WAITING_FOR_CHUNK"
    RUNNING = "RUNNING"
    PREEMPTED = "PREEMPTED"
    FINISHED_STOPPED = "FINISHED_STOPPED"
    FINISHED_LENGTH_CAPPED = "FINISHED_LENGTH_CAPPED"
    FINISHED_REPETITION = "FINISHED_REPETITION"
    FINISHED_ABORTED = "FINISHED_ABORTED"
    FINISHED_IGNORED = "FINISHED_IGNORED"
    FINISHED_ERROR = "FINISHED_ERROR"
    WAITING_FOR_TRANSFER_FREE = "WAITING_FOR_TRANSFER_FREE"


class Kind(Enum):
    """Kinds of transfer: a remote writer fills blocks, a remote reader copies them, a later stage is handed them."""

    RECEIVE = "RECEIVE"
    SEND = "SEND"
    HANDOFF = "HANDOFF"


class Transfer(Enum):
    """States of one transfer."""

    NONE = "NONE"
    NEEDED = "NEEDED"
    ACTIVE = "ACTIVE"
    DONE = "DONE"
    FAILED = "FAILED"
    LOST = "LOST"


class Flight(Enum):
    """States of a model step: being built by `schedule()`, dispatched to the workers, answered and being processed."""

    IDLE = "IDLE"
    BUILDING = "BUILDING"
    DISPATCHED = "DISPATCHED"
    ANSWERED = "ANSWERED"


class Row(Enum):
    """A request's part in a step: CURRENT, or of an earlier epoch (its tokens are DELIVERABLE, or to be DROPPED)."""

    NONE = "NONE"
    CURRENT = "CURRENT"
    DELIVERABLE = "DELIVERABLE"
    DROPPED = "DROPPED"


class Phase(Enum):
    """Which call into the scheduler is going on; calls do not overlap."""

    BETWEEN_CALLS = "BETWEEN_CALLS"
    SCHEDULING = "SCHEDULING"
    UPDATING = "UPDATING"
    RESETTING = "RESETTING"


class Party(Enum):
    """Who can break the contract."""

    CLIENT = "CLIENT"
    WORKER = "WORKER"
    CONNECTOR = "CONNECTOR"


FINISHED = (
    Status.FINISHED_STOPPED,
    Status.FINISHED_LENGTH_CAPPED,
    Status.FINISHED_REPETITION,
    Status.FINISHED_ABORTED,
    Status.FINISHED_IGNORED,
    Status.FINISHED_ERROR,
)
OVER = (*FINISHED, Status.WAITING_FOR_TRANSFER_FREE)
GONE = (*OVER, Status.FREED)
UNFINISHED = tuple(s for s in Status if s not in GONE)
OUTSTANDING = (Transfer.NEEDED, Transfer.ACTIVE, Transfer.LOST)

spec = Spec("vllm")

max_tokens = spec.const("max_tokens")
"""Largest number of tokens of a request that a scope counts to."""
max_num_seqs = spec.const("max_num_seqs")
"""Slots: how many requests may run or load at once."""
pool_blocks = spec.const("pool_blocks")
"""Size of the block pool as the admission module counts it."""
encoder_budget = spec.const("encoder_budget")
"""Capacity of the encoder cache in entries."""
max_want = spec.const("max_want")
"""Largest number of blocks that a request of a scope asks for."""
max_requests = spec.const("max_requests")
"""Number of request ids in a scope; bounds counts of requests."""
kv_connector = spec.const("kv_connector", low=0)
"""1 when a KV connector is attached, which loads blocks and may hold those of finished requests, else 0."""
handoff_stage = spec.const("handoff_stage", low=0)
"""1 when this engine hands the KV cache of its requests to a later stage, else 0."""

TOKENS = IntSort(0, "max_tokens")

# fmt: off
# module engine: calls, sleep, survival
spec.var("phase", to=Phase, init=Phase.BETWEEN_CALLS, module="engine", doc="the call into the scheduler that is going on")
spec.var("asleep", module="sleep", doc="the engine loop waits for a client because nothing is left to do")
spec.var("alive", init=True, module="contract", doc="no exception has left the scheduler")
spec.var("blamed", Party, module="contract", doc="a breach of contract was attributed to this party")
spec.var("breached", Party, module="contract", ghost=True, doc="this party did break its contract")
spec.var("mishap", module="contract", ghost=True, doc="something failed that nobody is to blame for")

# module queue: requests
spec.var("status", Request, to=Status, init=Status.FREED, module="queue", doc="the request's state")
spec.var("announced", Request, module="queue", doc="a worker was told of this incarnation as a new request")
spec.var("kv_holding", Request, module="queue", doc="a waiting request that holds a block table")
spec.var("parked_running", Request, module="queue", doc="waits for a chunk while it stays in the running list")
spec.var("in_waiting", Request, module="membership", doc="member of a waiting queue")
spec.var("in_running", Request, module="membership", doc="member of the running list")
spec.var("incarnation", Request, module="membership", ghost=True, doc="flips whenever the id is given to a new request")
spec.var("before", Request, Request, module="order", doc="the first is ahead of the second in the waiting queue")

# module steps: steps in flight
spec.var("flight", Step, to=Flight, init=Flight.IDLE, module="steps", doc="the step's state")
spec.var("row", Step, Request, to=Row, init=Row.NONE, module="steps", doc="the request's part in the step")
spec.var("epoch_over", Step, Request, module="epochs", ghost=True, doc="the row's request was preempted, stopped or freed since")

# module custody: blocks and who holds them
spec.var("free", Block, init=True, module="custody", doc="the block is in the free pool")
spec.var("table", Request, Block, module="custody", doc="the block is in the request's block table")
spec.var("step_holds", Step, Block, module="custody", doc="the dispatched step reads or writes the block")
spec.var("transfer", Request, Kind, to=Transfer, init=Transfer.NONE, module="custody", doc="the request's transfer of this kind")
spec.var("pinned", Request, Kind, Block, module="custody", doc="the transfer holds the block")
spec.var("remote", Request, Kind, Block, module="custody", ghost=True, doc="a remote party may still touch the block")
spec.var("running_step", Step, Block, module="custody", ghost=True, doc="a worker may still touch the block for this step")

# module pool: the free list and the reference counts
spec.var("ref", Block, to=IntSort(0, "max_requests"), init=0, module="pool", doc="number of tables with the block")
spec.var("listed", Block, to=IntSort(0, 2), init=1, module="pool", doc="how often the block stands in the free list")

# module prefix: the prefix cache
spec.var("cached", Block, module="prefix", doc="the block can be found by its hash")
spec.var("promised", Request, Block, module="prefix", doc="cached in this pass; this request's row will compute it")
spec.var("content", Block, module="prefix", doc="the block holds what its hash says (or a dispatched step writes it)")

# module handoff and chunks: what vllm-omni adds
spec.var("triggered", Request, module="handoff", doc="this incarnation's hand-off was triggered")
spec.var("handoffs", Request, to=IntSort(0, 2), init=0, module="handoff", ghost=True, doc="hand-offs of this incarnation")
spec.var("ended_badly", Request, module="handoff", ghost=True, doc="the request was aborted or failed")
spec.var("chunk_ready", Request, module="chunks", doc="a chunk of this incarnation has arrived")
spec.var("polled", Request, module="chunks", doc="the chunk adapter polls for this id")

# module hooks: notices and connector hooks
spec.var("notice", Request, module="hooks", doc="the workers must still be told that this id finished")
spec.var("finish_hooks", Request, to=IntSort(0, 2), init=0, module="hooks", doc="calls of request_finished for this incarnation")
spec.var("told_new", Request, to=IntSort(0, 2), init=0, module="hooks", ghost=True, doc="times announced as new")
spec.var("output_params", Request, Kind, module="hooks", doc="the final output carries the parameters of this transfer")
spec.var("params_made", Request, Kind, module="hooks", ghost=True, doc="a transfer of this kind gave parameters for the client")

# module sessions
spec.var("resumable", Request, module="sessions", doc="the client may send further input for this request")

# module tokens: counters
spec.var("known", Request, to=TOKENS, init=0, module="tokens", doc="tokens of prompt and output that are known")
spec.var("computed", Request, to=TOKENS, init=0, module="tokens", doc="tokens whose KV is computed or being computed")
spec.var("placeholders", Request, to=TOKENS, init=0, module="tokens", doc="output tokens awaited from steps in flight")
spec.var("drafts", Request, to=IntSort(0, 1), init=0, module="tokens", doc="draft tokens proposed for the next step")
spec.var("row_samples", Step, Request, to=IntSort(0, 2), init=0, module="tokens", doc="output tokens that the row may bring")

# module slots
spec.var("running_count", to=IntSort(0, "max_requests"), init=0, module="slots", doc="number of running requests")
spec.var("loading_count", to=IntSort(0, "max_requests"), init=0, module="slots", doc="number of requests waiting for remote KV")
spec.var("fruitless", module="pressure", doc="a preemption of this pass gave no block back at once")
spec.var("preempted_in_pass", module="pressure", doc="some request was preempted in this pass")
spec.var("fruitless_count", to=IntSort(0, 2), init=0, module="pressure", ghost=True, doc="preemptions after a fruitless one")

# module admission: how much of the pool is promised to whom, in numbers
spec.var("want", Request, to=IntSort(0, "max_want"), init=0, module="admission", doc="blocks it needs to run, with look-ahead")
spec.var("held", Request, to=IntSort(0, "max_want"), init=0, module="admission", doc="blocks it has")
spec.var("used", to=IntSort(0, "pool_blocks"), init=0, module="admission", doc="blocks in use")
spec.var("reserved", to=IntSort(0, "pool_blocks"), init=0, module="admission", doc="blocks promised to loads, not in use yet")

# module encoder: the encoder cache
spec.var("enc_cached", Entry, module="encoder", doc="the entry is in the encoder cache")
spec.var("enc_ref", Request, Entry, module="encoder", doc="the request still needs the entry")
spec.var("enc_holds", Step, Entry, module="encoder", doc="the dispatched step reads the entry")
spec.var("enc_running", Step, Entry, module="encoder", ghost=True, doc="a worker may still read the entry for this step")
spec.var("enc_drop", Entry, module="encoder", doc="the workers are to be told to drop the entry")
spec.var("enc_used", to=IntSort(0, "encoder_budget"), init=0, module="encoder", doc="entries that the budget counts")
# fmt: on
