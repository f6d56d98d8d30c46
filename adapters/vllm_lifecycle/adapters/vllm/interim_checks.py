"""Interim judgement of snapshots in plain Python; goes away when the spec's own terms are bound (`binding`).

Each check yields (property, subject, message).  A violation is reported when it is new after a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .driver import Driver
from .events import Event, Schedule
from .snapshot import RequestView, Snapshot


@dataclass(frozen=True)
class Violation:
    """A property that does not hold: on what, and how it shows.  `kind` tells different mechanisms apart."""

    claim: str
    subject: str
    message: str
    kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.claim, self.subject


QUESTIONS = frozenset(
    {
        "running_and_loading_requests_fit_the_slots",
        "a_pass_with_room_for_a_running_request_schedules_it",
        "the_connector_hears_only_of_requests_that_had_blocks",
        "a_request_of_a_higher_class_runs_before_a_lower_one",
        "a_waiting_request_that_fits_is_not_held_up",
    }
)
"""Properties whose fall leaves the scheduler's books in order: a sequence may go on after them."""
POLICY = frozenset(
    {
        "the_connector_hears_only_of_requests_that_had_blocks",
        "a_request_of_a_higher_class_runs_before_a_lower_one",
        "a_waiting_request_that_fits_is_not_held_up",
    }
)
"""Design questions: judged only when the scope asks for policy properties."""


def violations(driver: Driver, event: Event, before: Snapshot | None, now: Snapshot) -> list[Violation]:
    """All violations in the state `now`, which came about by `event`."""
    found = [
        *_custody(driver, now),
        *_places(driver, before, now),
        *_counters(driver, now),
        *_conservation(driver, now),
        *_engine(driver, now),
        *_hooks(driver),
        *_encoder(driver, now),
    ]
    if isinstance(event, Schedule) and before is not None:
        found += [*_empty_pass(driver, now), *_order(driver, before, now)]
    return [v for v in found if driver.scope.policy_properties or v.claim not in POLICY]


def _custody(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    free = set(s.free)
    judged_steps = driver.scope.connector and driver.scope.depth > 1
    for flight in s.flights:
        if flight.kind == "step" and not judged_steps:
            continue
        lost = [b for b in flight.blocks if b in free]
        who = f"{flight.kind} {flight.rid}"
        if lost:
            yield Violation(
                "a_free_block_has_no_holder",
                who,
                f"blocks {lost} are free while a {who} touches them",
                flight.kind,
            )
        elif flight.kind != "step" and driver.scope.groups == 1:
            owner = next((r for r in s.requests if (r.rid, r.epoch) == (flight.rid, flight.epoch)), None)
            gone = sorted(set(flight.blocks) - set(owner.table if owner else ()) - set(s.deferred))
            if gone:
                text = f"blocks {gone} are held for {flight.rid} no more while a {who} touches them"
                yield Violation("a_block_in_transfer_is_held_for_its_request", who, text, flight.kind)
        if flight.kind == "receive":
            for r in s.requests:
                shared = sorted(set(r.table) & set(flight.blocks))
                if shared and (r.rid, r.epoch) != (flight.rid, flight.epoch):
                    text = f"blocks {shared} are in the table of {r.rid} while a {who} fills them"
                    yield Violation("a_block_being_received_has_one_owner", who, text)
            early = sorted(s.cached & set(flight.blocks))
            if early:
                text = f"blocks {early} are in the prefix cache while a {who} fills them"
                yield Violation("only_computed_or_loaded_tokens_are_cached", who, text)


def _places(driver: Driver, before: Snapshot | None, s: Snapshot) -> Iterator[Violation]:
    for r in s.requests:
        if r.finished and r.queues:
            yield Violation(
                "an_unfinished_request_is_in_exactly_one_place",
                r.rid,
                f"{r.rid} is {r.status} and in {r.queues}",
            )
        elif not r.finished and (len(r.queues) != 1 or not r.tracked):
            where = " and ".join(r.queues) or "no queue"
            tracked = "" if r.tracked else ", untracked"
            yield Violation(
                "an_unfinished_request_is_in_exactly_one_place",
                r.rid,
                f"{r.rid} is {r.status}, in {where}{tracked}",
            )
        elif (r.status == "RUNNING") != (r.queues == ("running",)) and not r.finished:
            yield Violation("status_and_queue_agree", r.rid, f"{r.rid} is {r.status} in {r.queues[0]}")
    if before is not None:
        ended = {(r.rid, r.epoch): r.status for r in before.requests if r.finished}
        for r in s.requests:
            old = ended.get((r.rid, r.epoch))
            if old is not None and old != r.status:
                yield Violation("a_final_status_is_final", r.rid, f"{r.rid} went from {old} to {r.status}")
    tracked_now = {(r.rid, r.epoch) for r in s.requests if r.tracked}
    for life in driver.truth.lives.values():
        if not life.client_done and not life.closed and (life.rid, life.epoch) not in tracked_now:
            yield Violation(
                "a_request_is_tracked_until_its_client_knows_the_end",
                life.rid,
                f"{life.rid} is tracked no more",
            )


def _counters(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    for rid in sorted(driver.truth.strays):
        text = f"tokens computed for an earlier request of id {rid} were given to its successor"
        yield Violation("an_output_belongs_to_the_incarnation_that_computed_it", rid, text)
    drafts = driver.truth.drafts_in_flight
    for r in s.requests:
        if r.placeholders < 0:
            yield Violation("output_placeholders_are_never_negative", r.rid, f"{r.rid}: {r.placeholders}")
        limit = r.known + r.placeholders + drafts.get(r.rid, 0)
        if not r.finished and not 0 <= r.computed <= limit:
            text = f"{r.rid}: {r.computed} computed of {r.known} known and {r.placeholders} placeholders"
            yield Violation("computed_tokens_are_known_tokens", r.rid, text)


def _conservation(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    doubled = sorted(b for b, n in Counter(s.free).items() if n > 1)
    if doubled or len(s.free) != s.free_count:
        text = f"free list {list(s.free)}, counter {s.free_count}"
        yield Violation("the_free_counter_is_the_length_of_the_free_list", "pool", text)
    null = driver.observer.null
    unheld = {b for b, n in enumerate(s.references) if n == 0 and b != null}
    if unheld != set(s.free):
        text = f"reference count 0: {sorted(unheld)}, free list {sorted(s.free)}"
        yield Violation("a_block_is_free_iff_nobody_references_it", "pool", text)
    if not driver.scope.encoder and driver.scope.groups == 1:
        uses = Counter(b for r in s.requests if r.tracked for b in r.table) + Counter(s.deferred)
        wrong = {b: (n, uses[b]) for b, n in enumerate(s.references) if b != null and n != uses[b]}
        if wrong:
            text = f"block -> (reference count, tables): {wrong}"
            yield Violation("a_reference_count_is_the_number_of_tables", "pool", text)
    loading = [r.rid for r in s.requests if r.status == "WAITING_FOR_REMOTE_KVS"]
    if len(s.running) > driver.scope.slots:
        yield Violation(
            "running_requests_fit_the_slots", "slots", f"{len(s.running)} of {driver.scope.slots}"
        )
    if loading and len(s.running) + len(loading) > driver.scope.slots:
        text = f"{len(s.running)} running and {len(loading)} loading, max_num_seqs {driver.scope.slots}"
        yield Violation("running_and_loading_requests_fit_the_slots", "slots", text)


def _encoder(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    if s.encoder is None:
        return
    if not 0 <= s.encoder.free <= s.encoder.capacity:
        text = f"{s.encoder.free} slots free of {s.encoder.capacity}"
        yield Violation("free_encoder_slots_never_exceed_the_capacity", "encoder cache", text)
    if driver.scope.encoder == "encoder-decoder":
        return
    for step in driver.truth.steps:
        for rid, entries in step.encodes.items():
            view = s.request(rid)
            lost = sorted(set(entries) - set(s.encoder.referenced))
            if lost and view is not None and not view.finished and view.epoch == step.epochs[rid]:
                text = f"{lost} can be evicted while a dispatched step of {rid} reads them"
                yield Violation("an_encoder_entry_is_kept_while_a_step_reads_it", rid, text)
    if driver.truth.steps:
        both = sorted(set(driver.truth.steps[-1].drops) & set(s.encoder.entries))
        if both:
            text = f"the worker is told to drop {both}, which the cache holds"
            yield Violation("a_dropped_encoder_entry_is_not_cached", "encoder cache", text)


def _engine(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    if s.awake or s.steps or driver.truth.pause:
        return
    for t in driver.truth.transfers:
        text = f"has_requests() is false while the {t.kind} of {t.rid} is not acknowledged"
        yield Violation("the_engine_is_awake_while_an_acknowledgement_is_awaited", f"{t.kind} {t.rid}", text)
    for life in driver.truth.lives.values():
        view = s.request(life.rid)
        parked = view is not None and view.status == "WAITING_FOR_STREAMING_REQ"
        if not life.client_done and not life.closed and not parked:
            yield Violation(
                "the_engine_is_awake_while_a_request_is_unfinished", life.rid, "has_requests() is false"
            )


def _hooks(driver: Driver) -> Iterator[Violation]:
    for life in (*driver.truth.past, *driver.truth.lives.values()):
        if life.finished_calls > 1:
            text = f"request_finished({life.rid}) was called {life.finished_calls} times"
            yield Violation("request_finished_is_called_exactly_once", f"{life.rid}.{life.epoch}", text)
    known: set[str] = set()
    for call in driver.truth.hooks:
        if call.hook == "update_state_after_alloc":
            known.add(call.rid)
        elif call.hook == "request_finished" and call.rid not in known:
            text = f"request_finished({call.rid}) though no block was ever allocated"
            yield Violation("the_connector_hears_only_of_requests_that_had_blocks", call.rid, text)


def _empty_pass(driver: Driver, s: Snapshot) -> Iterator[Violation]:
    steps = driver.truth.steps
    if driver.truth.pause or len(steps) != 1 or steps[0].tokens or driver.scope.drafts:
        return
    for r in s.requests:
        if r.status == "RUNNING" and fits_now(driver, r, s):
            text = f"schedule() gave no token although {r.rid} is RUNNING and {s.free_count} blocks are free"
            yield Violation("a_pass_with_room_for_a_running_request_schedules_it", r.rid, text)


def _order(driver: Driver, before: Snapshot, s: Snapshot) -> Iterator[Violation]:
    steps = driver.truth.steps
    if driver.truth.pause or not steps or not steps[-1].tokens:
        return
    priority = {life.rid: life.priority for life in driver.truth.lives.values()}
    ready = [r for r in s.requests if r.status == "WAITING" and r.queues]
    if driver.scope.policy == "priority" and len(s.running) >= driver.scope.slots:
        for r in ready:
            lower = [x for x in steps[-1].tokens if priority[x] > priority[r.rid]]
            if lower:
                text = f"{r.rid} (priority {priority[r.rid]}) waits while {lower} of a lower class go on"
                yield Violation("a_request_of_a_higher_class_runs_before_a_lower_one", r.rid, text)
    if driver.scope.policy == "fcfs" and len(s.running) < driver.scope.slots:
        if len(steps) > 1 or any(r.status == "PREEMPTED" for r in s.requests):
            return
        for r in ready:
            if driver.scope.need(r.known) <= s.free_count and s.waiting[:1] != (r.rid,):
                text = f"{r.rid} fits in {s.free_count} free blocks and waits behind {s.waiting[0]}"
                yield Violation("a_waiting_request_that_fits_is_not_held_up", r.rid, text)


def fits_now(driver: Driver, r: RequestView, s: Snapshot) -> bool:
    """Whether the next token of a request has something to compute and its block is at hand."""
    wants = r.known + r.placeholders > r.computed
    return wants and driver.scope.need(r.computed + 1) - len(r.table) <= s.free_count
