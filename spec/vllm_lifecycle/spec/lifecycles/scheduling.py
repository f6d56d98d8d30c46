"""One pass of `schedule()`: a step is built request by request, then dispatched.

Inside a pass the actions are per request, so a policy is any order of enabled actions. Nothing else of the engine happens
in a pass; only the outside world (a transfer that completes) may move meanwhile, which is more than vLLM allows.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, exists, forall, ite
from vllm_lifecycle.spec.lang.machine import Fairness
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.requests import Blocks, between_calls
from vllm_lifecycle.spec.lifecycles.tokens import require_tokens, schedule_tokens
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    Block,
    Flight,
    Kind,
    Phase,
    Request,
    Row,
    Status,
    Step,
    Transfer,
    kv_connector,
    max_num_seqs,
    pool_blocks,
    spec,
)

SCHEDULE = "v1/core/sched/scheduler.py: Scheduler.schedule"


@spec.action(
    by="scheduler",
    fair=Fairness.STRONG,
    source={
        "0.13.0": SCHEDULE,
        "0.32.0": SCHEDULE,
        "omni": "core/sched/omni_ar_scheduler.py: OmniARScheduler.schedule",
    },
)
def begin_pass(s: State, k: Step) -> None:
    """IDLE -> BUILDING: `schedule()` starts to build a step, while others may still be in flight."""
    between_calls(s)
    s.require(~s.asleep, "the engine loop is awake")
    s.require(s.flight[k] == Flight.IDLE)
    s.flight[k] = Flight.BUILDING
    s.phase = Phase.SCHEDULING
    s.fruitless = False
    s.preempted_in_pass = False
    s.fruitless_count = 0


def in_pass(s: State, k: Expr, r: Expr) -> None:
    """Guard: the step is being built and the request has no part in it yet."""
    s.require(s.flight[k] == Flight.BUILDING, "the step is being built")
    s.require(s.row[k, r] == Row.NONE, "one row per request and step")


def require_share(s: State, r: Expr) -> None:
    """Guard of admission: all that the request needs to run is neither in use nor promised to a load."""
    s.require(s.used + s.reserved + s.want[r] <= pool_blocks, "its whole share can be promised")


def take_share(s: State, r: Expr, first: object) -> None:
    """The whole share is promised to the request, which has `first` blocks of it now."""
    s.reserved = s.reserved + s.want[r] - first
    s.used = s.used + first
    s.held[r] = first


def may_enter(s: State, r: Expr) -> None:
    """Guard of admission: the request waits, a slot is free, and tokens of its last run are not still to be delivered."""
    s.require(do.is_waiting(s, r))
    s.require(s.running_count + s.loading_count < max_num_seqs, "a slot is free")
    s.require(
        forall(Step, lambda k: s.row[k, r] != Row.DELIVERABLE),
        "tokens of the last run are delivered before it resumes",
    )


@spec.action(by="scheduler", fair=Fairness.STRONG, source={"0.13.0": SCHEDULE, "0.32.0": SCHEDULE})
def admit_request(s: State, k: Step, r: Request, hits: SetOf[Block], fresh: SetOf[Block], last: bool) -> None:
    """WAITING or PREEMPTED -> RUNNING: shared blocks from the prefix cache, fresh ones for the rest, and a row in the step."""
    in_pass(s, k, r)
    may_enter(s, r)
    s.require(~s.kv_holding[r])
    s.require(exists(Block, lambda b: fresh[b]), "at least one token is computed, so one block is written")
    do.require_blocks(s, fresh, hits)
    require_tokens(s, r, last)
    require_share(s, r)
    do.fill_table(s, r, fresh, hits)
    take_share(s, r, s.want[r])
    do.enter_running(s, r)
    do.schedule_row(s, k, r)
    schedule_tokens(s, k, r, last)


@spec.action(
    by="scheduler",
    feature="load",
    fair=Fairness.STRONG,
    source={"0.13.0": SCHEDULE, "0.32.0": SCHEDULE + " (kv_holding_waiting)"},
)
def admit_holding_request(s: State, k: Step, r: Request, fresh: SetOf[Block], last: bool) -> None:
    """WAITING or PREEMPTED -> RUNNING with the blocks that were loaded, or kept from the last turn, and fresh ones."""
    in_pass(s, k, r)
    may_enter(s, r)
    s.require(s.kv_holding[r])
    do.require_blocks(s, fresh)
    require_tokens(s, r, last)
    s.require(s.used + (s.want[r] - s.held[r]) <= pool_blocks, "the rest of its share is there")
    do.fill_table(s, r, fresh)
    s.used = s.used + (s.want[r] - s.held[r])
    s.reserved = s.reserved - (s.want[r] - s.held[r])
    s.held[r] = s.want[r]
    do.enter_running(s, r)
    do.schedule_row(s, k, r)
    schedule_tokens(s, k, r, last)


@spec.action(
    by="scheduler",
    feature="load",
    source={
        "0.13.0": SCHEDULE + " (get_num_new_matched_tokens, load_kv_async)",
        "0.32.0": SCHEDULE
        + " (get_num_new_matched_tokens, load_kv_async, _inflight_prefill_reserved_blocks)",
    },
)
def start_receive(s: State, r: Request, hits: SetOf[Block], fresh: SetOf[Block], first: Blocks) -> None:
    """WAITING or PREEMPTED -> WAITING_FOR_REMOTE_KVS: blocks are set aside and a remote writer begins to fill them."""
    s.require(s.phase == Phase.SCHEDULING)
    may_enter(s, r)
    s.require(~s.kv_holding[r])
    s.require(exists(Block, lambda b: fresh[b]), "something is loaded")
    s.require(s.transfer[r, Kind.RECEIVE] == Transfer.NONE)
    s.require(kv_connector == 1)
    do.require_blocks(s, fresh, hits)
    s.require(first <= s.want[r])
    require_share(s, r)
    do.fill_table(s, r, fresh, hits)
    take_share(s, r, first)
    do.begin_transfer(s, r, Kind.RECEIVE, Transfer.ACTIVE)
    do.set_status(s, r, Status.WAITING_FOR_REMOTE_KVS)


PROMOTE = {
    "0.13.0": "v1/core/sched/scheduler.py: Scheduler._update_waiting_for_remote_kv",
    "0.32.0": "v1/core/sched/scheduler.py: Scheduler._update_waiting_for_remote_kv, _handle_blocked_waiting_request",
}


def ready_again(s: State, r: Expr) -> Expr:
    """WAITING for a request that no worker knows yet, PREEMPTED for one that was announced before."""
    return ite(s.announced[r], Status.PREEMPTED, Status.WAITING)


@spec.action(by="scheduler", feature="load", fair=Fairness.STRONG, source=PROMOTE)
def promote_loaded_request(s: State, r: Request) -> None:
    """WAITING_FOR_REMOTE_KVS -> WAITING (or PREEMPTED if it ran before): the load is done, and what came whole can be shared."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.WAITING_FOR_REMOTE_KVS)
    s.require(s.transfer[r, Kind.RECEIVE] == Transfer.DONE)
    s.transfer[r, Kind.RECEIVE] = Transfer.NONE
    s.cached[:] = lambda b: s.cached[b] | (s.table[r, b] & s.content[b])
    s.kv_holding[r] = True
    do.set_status(s, r, ready_again(s, r))


@spec.action(by="scheduler", feature="load_failure", fair=Fairness.STRONG, source=PROMOTE)
def retry_failed_load(s: State, r: Request) -> None:
    """WAITING_FOR_REMOTE_KVS -> WAITING or PREEMPTED, recompute policy: nothing came, the blocks are given back."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.WAITING_FOR_REMOTE_KVS)
    s.require(s.transfer[r, Kind.RECEIVE] == Transfer.FAILED)
    s.transfer[r, Kind.RECEIVE] = Transfer.NONE
    do.drop_table(s, r)
    do.give_back_share(s, r)
    do.set_status(s, r, ready_again(s, r))
    do.settle(s)


@spec.action(by="scheduler", source={"0.13.0": SCHEDULE, "0.32.0": SCHEDULE})
def continue_request(s: State, k: Step, r: Request, fresh: SetOf[Block], last: bool) -> None:
    """A running request takes part in the step, with the blocks it grows into (often none)."""
    in_pass(s, k, r)
    s.require(s.status[r] == Status.RUNNING)
    do.require_blocks(s, fresh)
    require_tokens(s, r, last)
    do.fill_table(s, r, fresh)
    do.schedule_row(s, k, r)
    schedule_tokens(s, k, r, last)


@spec.action(
    by="scheduler",
    feature="preemption",
    source={
        "0.13.0": "v1/core/sched/scheduler.py: Scheduler._preempt_request",
        "0.32.0": "v1/core/sched/scheduler.py: Scheduler._preempt_request",
    },
)
def preempt_request(s: State, r: Request) -> None:
    """RUNNING -> PREEMPTED under pressure: its row in this pass is undone, outputs in flight are still delivered."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.RUNNING)
    s.require(
        forall(Request, Block, lambda x, b: (s.promised[r, b] & s.table[x, b]) >> (x == r)),
        "nobody shares a block that this pass was going to compute for it",
    )
    s.require(~s.fruitless, "a preemption that gains nothing is not repeated")
    do.preempt(s, r, Row.DELIVERABLE)
    gained = exists(Block, lambda b: s.free[b] & ~s.old.free[b])
    s.preempted_in_pass = True
    s.fruitless_count = ite(s.fruitless, do.at_most_two(s.fruitless_count + 1), s.fruitless_count)
    s.fruitless = s.fruitless | ~gained


@spec.action(
    by="scheduler",
    feature="sessions",
    source={"0.32.0": "no counterpart: sessions that wait for blocks of each other wait for ever"},
)
def give_up_kept_blocks(s: State, r: Request) -> None:
    """A waiting request gives up the blocks that it kept, for others that wait, and computes again; it keeps its place."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.WAITING)
    s.require(s.kv_holding[r])
    s.kv_holding[r] = False
    do.drop_table(s, r)
    do.forget_tokens(s, r)
    do.give_back_share(s, r)
    do.settle(s)


@spec.action(
    by="scheduler",
    feature="window",
    source={
        "0.13.0": "v1/core/single_type_kv_cache_manager.py: SlidingWindowManager.remove_skipped_blocks",
        "0.32.0": "v1/core/single_type_kv_cache_manager.py: SlidingWindowManager.remove_skipped_blocks",
    },
)
def slide_window(s: State, r: Request, b: Block) -> None:
    """A running request gives back a block that fell out of its attention window."""
    s.require(s.phase == Phase.SCHEDULING)
    s.require(s.status[r] == Status.RUNNING)
    s.require(s.table[r, b])
    s.require(~s.promised[r, b])
    s.ref[b] = s.ref[b] - 1
    s.table[r, b] = False
    do.settle(s)


@spec.action(
    by="scheduler",
    feature="prefix",
    source={
        "0.13.0": "v1/core/kv_cache_manager.py: KVCacheManager.allocate_slots (cache_blocks)",
        "0.32.0": "v1/core/kv_cache_manager.py: KVCacheManager.allocate_slots (cache_blocks)",
    },
)
def cache_block(s: State, k: Step, r: Request, b: Block) -> None:
    """A block that this step fills is entered in the prefix cache at once; a later request of the pass may share it."""
    s.require(s.flight[k] == Flight.BUILDING)
    s.require(s.row[k, r] == Row.CURRENT, "this step computes the block")
    s.require(s.table[r, b])
    s.require(~s.cached[b])
    s.cached[b] = True
    s.promised[r, b] = True


def something_can_run(s: State) -> Expr:
    """A running request has tokens to compute, and there is a free block should it need one."""
    return exists(
        Request, lambda r: (s.status[r] == Status.RUNNING) & (s.computed[r] < s.known[r] + s.placeholders[r])
    ) & exists(Block, lambda b: s.free[b])


def listed_in(s: State, k: Expr, b: Expr) -> Expr:
    """The block is in the table of a request that takes part in the step."""
    return exists(Request, lambda r: (s.row[k, r] == Row.CURRENT) & s.table[r, b])


@spec.action(
    by="scheduler",
    fair=Fairness.STRONG,
    source={
        "0.13.0": SCHEDULE + ", _update_after_schedule",
        "0.32.0": SCHEDULE + ", _update_after_schedule",
    },
)
def dispatch_step(s: State, k: Step) -> None:
    """BUILDING -> DISPATCHED: the pass ends; the step holds every block of its rows until its output is processed."""
    s.require(s.flight[k] == Flight.BUILDING)
    s.require(
        ~s.preempted_in_pass | exists(Request, lambda r: s.row[k, r] == Row.CURRENT) | ~something_can_run(s),
        "after a preemption the pass goes on",
    )
    s.flight[k] = Flight.DISPATCHED
    s.phase = Phase.BETWEEN_CALLS
    for mark in (s.step_holds, s.running_step):
        mark[k, :] = lambda b: listed_in(s, k, b)
    s.content[:] = lambda b: s.content[b] | listed_in(s, k, b)
    for use in (s.enc_holds, s.enc_running):
        use[k, :] = lambda e: exists(Request, lambda r: (s.row[k, r] == Row.CURRENT) & s.enc_ref[r, e])
    s.enc_drop[:] = False
    s.promised[:, :] = False
    s.notice[:] = False
