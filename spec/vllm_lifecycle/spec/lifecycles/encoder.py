"""The encoder cache: entries that requests need until they are computed past, and that steps in flight still read."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import State, forall, one_if
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Entry,
    Flight,
    Phase,
    Request,
    Row,
    Step,
    encoder_budget,
    spec,
)

MANAGER = "v1/core/encoder_cache_manager.py: EncoderCacheManager."


@spec.action(
    by="scheduler",
    feature="encoder",
    source={"0.13.0": MANAGER + "can_allocate, allocate", "0.32.0": MANAGER + "can_allocate, allocate"},
)
def allocate_entry(s: State, k: Step, r: Request, e: Entry) -> None:
    """A request of the step needs an encoder output: it is found in the cache, or computed and entered."""
    s.require(s.flight[k] == Flight.BUILDING)
    s.require(s.row[k, r] == Row.CURRENT)
    s.require(~s.enc_ref[r, e])
    s.require(s.enc_cached[e] | (s.enc_used < encoder_budget), "there is room")
    s.enc_used = s.enc_used + one_if(~s.enc_cached[e])
    s.enc_cached[e] = True
    s.enc_ref[r, e] = True
    s.enc_drop[e] = False


@spec.action(
    by="scheduler",
    feature="encoder",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._free_encoder_inputs",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._free_encoder_inputs",
    },
)
def release_entry(s: State, r: Request, e: Entry) -> None:
    """The request is computed past the entry: it may be evicted once nobody needs it."""
    s.require(s.phase == Phase.UPDATING)
    s.require(s.enc_ref[r, e])
    s.enc_ref[r, e] = False


@spec.action(
    by="scheduler",
    feature="encoder",
    source={"0.13.0": MANAGER + "get_freed_mm_hashes", "0.32.0": MANAGER + "get_freed_mm_hashes"},
)
def evict_entry(s: State, e: Entry) -> None:
    """An entry that no request needs and no step reads makes room; the workers are told to drop it."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.enc_cached[e])
    s.require(forall(Request, lambda r: ~s.enc_ref[r, e]), "no request needs it")
    s.require(forall(Step, lambda k: ~s.enc_holds[k, e]), "no step in flight reads it")
    s.enc_cached[e] = False
    s.enc_drop[e] = True
    s.enc_used = s.enc_used - 1
