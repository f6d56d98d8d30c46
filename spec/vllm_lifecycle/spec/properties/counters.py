"""Counters: tokens, slots, shares of the pool, the encoder budget."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, State, every, exists, ite
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lifecycles import effects as do
from vllm_lifecycle.spec.lifecycles.scheduling import something_can_run
from vllm_lifecycle.spec.lifecycles.vocabulary import (
    GONE,
    OVER,
    Entry,
    Flight,
    Request,
    Row,
    Status,
    Step,
    encoder_budget,
    max_num_seqs,
    max_tokens,
    pool_blocks,
    spec,
)


@spec.safety(ids=("P6", "ACCT"))
def no_more_is_computed_than_known_or_awaited(s: State, r: Request) -> Implication:
    """Computed tokens are known ones, or outputs that are awaited."""
    return when(s.computed[r] >= 1).then(s.computed[r] <= s.known[r] + s.placeholders[r])


@spec.safety(ids=("P6",), lemma=True)
def something_is_left_to_compute_or_awaited(s: State, r: Request) -> Implication:
    """The newest token of a request is never computed before it is known."""
    return when(s.computed[r] >= 1).then(s.computed[r] < s.known[r] + s.placeholders[r])


@spec.safety(ids=("P6", "P5"))
def a_running_request_with_nothing_in_flight_has_a_token_to_compute(s: State, r: Request) -> Implication:
    """A running request can always go on: an answer leaves its newest token to be computed."""
    return when(s.status[r] == Status.RUNNING).then(
        (s.computed[r] < s.known[r]) | exists(Step, lambda k: s.row[k, r] == Row.CURRENT)
    )


@spec.safety(ids=("P6",), lemma=True)
def a_request_that_awaits_output_has_computed_up_to_it(s: State, r: Request) -> Implication:
    """Output is awaited only from rows that computed everything known, so counters tell each other."""
    return when(s.placeholders[r] >= 1).then(
        s.computed[r] + 1 == s.known[r] + s.placeholders[r], s.known[r] + s.placeholders[r] <= max_tokens
    )


@spec.safety(ids=("P6",), lemma=True)
def an_unfinished_request_has_a_token(s: State, r: Request) -> Implication:
    """No prompt is empty."""
    return when(do.is_unfinished(s, r)).then(s.known[r] >= 1)


@spec.safety(ids=("P6",), lemma=True)
def a_request_that_is_gone_counts_no_tokens(s: State, r: Request) -> Implication:
    """Counters start afresh with each incarnation."""
    return when(s.status[r].is_in(*GONE)).then(
        (s.known[r] == 0) & (s.computed[r] == 0) & (s.placeholders[r] == 0) & (s.drafts[r] == 0)
    )


@spec.safety(ids=("P6",))
def only_a_running_request_awaits_output(s: State, r: Request) -> Implication:
    """A preempted, waiting or finished request awaits nothing: its counters start afresh."""
    return when(s.placeholders[r] >= 1).then(do.has_slot(s, r))


@spec.safety(ids=("P6", "P7"))
def only_a_running_request_has_drafts(s: State, r: Request) -> Implication:
    """Draft tokens do not survive a preemption, a turn or an end."""
    return when(s.drafts[r] >= 1).then(do.has_slot(s, r))


@spec.safety(ids=("P6",))
def a_row_awaits_no_more_than_its_request(s: State, k: Step, r: Request) -> Implication:
    """What a current row may bring is awaited by its request, so the awaited number never drops below zero."""
    return when(s.row[k, r] == Row.CURRENT).then(s.row_samples[k, r] <= s.placeholders[r])


@spec.safety(ids=("P6",), lemma=True)
def only_a_current_row_awaits_output(s: State, k: Step, r: Request) -> Implication:
    """A row that is undone, stale or processed awaits nothing."""
    return when(s.row_samples[k, r] >= 1).then(s.row[k, r] == Row.CURRENT)


@spec.count("placeholders", over=Step)
def tokens_that_a_row_may_bring(s: State, r: Request, k: Step) -> Expr:
    """What a request awaits is the sum of what its rows may bring."""
    return s.row_samples[k, r]  # type: ignore[no-any-return]


@spec.safety(ids=("P6",))
def what_is_awaited_is_in_flight(s: State, r: Request) -> Implication:
    """A request awaits output only from rows in flight: an answer without tokens releases what was awaited."""
    return when(s.placeholders[r] >= 1).then(exists(Step, lambda k: s.row_samples[k, r] >= 1))


@spec.safety(ids=("P11",))
def running_and_loading_requests_fit_the_slots(s: State, r: Request) -> Implication:
    """Requests that run or load never exceed max_num_seqs."""
    return when(do.has_slot(s, r) | do.is_loading(s, r)).then(
        s.running_count + s.loading_count <= max_num_seqs
    )


@spec.safety(ids=("P11", "P5"))
def a_slot_in_use_has_a_request(s: State) -> Implication:
    """No slot stays taken by a request that does not run: not by a parked session, nor by one that ended."""
    return when(s.running_count >= 1).then(exists(Request, lambda r: do.has_slot(s, r)))


@spec.count("running_count", over=Request)
def requests_with_a_slot(s: State, r: Request) -> Expr:
    """Slots in use."""
    return do.has_slot(s, r)


@spec.count("loading_count", over=Request)
def requests_that_load(s: State, r: Request) -> Expr:
    """Loads under way."""
    return do.is_loading(s, r)


@spec.safety(ids=("P5",))
def a_fruitless_preemption_is_not_repeated(s: State) -> Implication:
    """When a preemption gave no block back at once, the pass preempts nobody else."""
    return when(s.fruitless).then(s.fruitless_count == 0)


@spec.safety(ids=("P5",), lemma=True)
def no_preemption_follows_a_fruitless_one(s: State) -> Implication:
    """The number of preemptions after a fruitless one is zero."""
    return always(s.fruitless_count == 0)


@spec.safety(ids=("P5",))
def a_request_can_fit_an_empty_pool(s: State, r: Request) -> Implication:
    """A request that could never run is not kept waiting."""
    return when(s.want[r] >= 1).then(s.want[r] <= pool_blocks)


@spec.safety(ids=("P5", "P11"))
def what_is_in_use_was_promised(s: State, r: Request) -> Implication:
    """Blocks in use or promised never exceed the pool, and nobody has more than was promised to it."""
    return when(s.held[r] >= 1).then(s.held[r] <= s.want[r], s.used + s.reserved <= pool_blocks)


@spec.safety(ids=("P11",), lemma=True)
def the_pool_is_not_promised_twice(s: State) -> Implication:
    """Blocks in use and blocks promised fit the pool together."""
    return always(s.used + s.reserved <= pool_blocks)


@spec.safety(ids=("P5",), lemma=True)
def only_an_admitted_request_has_a_share(s: State, r: Request) -> Implication:
    """A request has blocks from its admission, or the start of its load, until it is preempted or freed."""
    return when(s.held[r] >= 1).then(
        do.has_slot(s, r) | s.kv_holding[r] | s.status[r].is_in(Status.WAITING_FOR_REMOTE_KVS, *OVER)
    )


@spec.safety(ids=("P5",), lemma=True)
def an_admitted_request_has_a_share(s: State, r: Request) -> Implication:
    """Whoever runs, loads or keeps its last turn has blocks."""
    return when(do.has_slot(s, r) | s.kv_holding[r] | do.is_loading(s, r)).then(s.held[r] >= 1)


@spec.safety(ids=("P5",), lemma=True)
def an_unfinished_request_wants_something(s: State, r: Request) -> Implication:
    """Every request needs a block to run."""
    return when(do.is_unfinished(s, r)).then(s.want[r] >= 1)


@spec.step(ids=("P5",))
def a_pass_goes_on_after_a_preemption(s: State, k: Step) -> Implication:
    """A pass that preempted somebody does not end empty while a running request could use what is free."""
    return when(
        s.old.flight[k] == Flight.BUILDING, s.flight[k] == Flight.DISPATCHED, s.old.preempted_in_pass
    ).then(exists(Request, lambda r: s.old.row[k, r] == Row.CURRENT) | ~something_can_run(s.old))


@spec.count("used", over=Request)
def blocks_that_a_request_has(s: State, r: Request) -> Expr:
    """Blocks in use are those that requests have."""
    return s.held[r]  # type: ignore[no-any-return]


@spec.count("reserved", over=Request)
def blocks_promised_to_a_request(s: State, r: Request) -> Expr:
    """Blocks promised are what those who have some still lack."""
    return ite(s.held[r] >= 1, s.want[r] - s.held[r], 0)


@spec.safety(ids=("P1",))
def an_entry_that_a_step_reads_is_cached(s: State, k: Step, e: Entry) -> Implication:
    """No encoder entry is evicted while a dispatched step may still read it."""
    return when(s.enc_running[k, e]).then(s.enc_cached[e])


@spec.safety(ids=("P1",), lemma=True)
def an_entry_that_a_step_reads_is_held_by_it(s: State, k: Step, e: Entry) -> Implication:
    """The scheduler's record of entries in use covers the truth."""
    return when(s.enc_running[k, e]).then(s.enc_holds[k, e])


@spec.safety(ids=("P1",))
def an_entry_that_a_request_needs_is_cached(s: State, r: Request, e: Entry) -> Implication:
    """No encoder entry is evicted while a request needs it."""
    return when(s.enc_ref[r, e]).then(s.enc_cached[e])


@spec.safety(ids=("P1",))
def a_cached_entry_is_not_to_be_dropped(s: State, e: Entry) -> Implication:
    """The workers are never told to drop an entry that is in the cache."""
    return when(s.enc_drop[e]).then(~s.enc_cached[e])


@spec.safety(ids=("P11",))
def a_cached_entry_counts_against_the_budget(s: State, e: Entry) -> Implication:
    """The encoder budget never says that an occupied cache is empty."""
    return when(s.enc_cached[e]).then((s.enc_used >= 1) & (s.enc_used <= encoder_budget))


@spec.count("enc_used", over=Entry)
def entries_in_the_cache(s: State, e: Entry) -> Expr:
    """The budget counts the entries in the cache."""
    return every(s.enc_cached[e])
