"""Claims that are not the specification's: design questions, and promises that a scheduler's own words make.

Design questions (order, fairness, hook etiquette) are judged only when a scope asks for them: a scheduler may answer them either
way, and vLLM's answer is by design.  Promises are judged by the family's extension, wherever what they speak of is there.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import Event, Schedule
from .snapshot import Snapshot
from .subject import Subject
from .violation import Violation

CLASS_ORDER = "a_request_of_a_higher_class_runs_before_a_lower_one"
NO_HOLD_UP = "a_waiting_request_that_fits_is_not_held_up"
HOOK_ORDER = "the_connector_hears_only_of_requests_that_had_blocks"
POLICY = frozenset({CLASS_ORDER, NO_HOLD_UP, HOOK_ORDER})
SNAPSHOT = "a_snapshot_at_a_token_holds_that_token"
TAKEN = "a_chunk_that_is_not_taken_is_sent_again"
PROMISES = frozenset({SNAPSHOT, TAKEN})


def policy_violations(driver: Subject, event: Event, now: Snapshot) -> list[Violation]:
    """The questions that the last call raises."""
    found = list(_hooks(driver))
    if isinstance(event, Schedule) and not driver.truth.pause and driver.truth.steps[-1].tokens:
        found += _classes(driver, now) if driver.scope.policy == "priority" else _head(driver, now)
    return found


def _hooks(driver: Subject) -> Iterator[Violation]:
    had: set[str] = set()
    for call in driver.truth.hooks:
        if call.hook == "update_state_after_alloc":
            had.add(call.rid)
        elif call.hook == "request_finished" and call.rid not in had:
            yield Violation(HOOK_ORDER, call.rid, f"request_finished({call.rid}), which never had a block")


def _classes(driver: Subject, s: Snapshot) -> Iterator[Violation]:
    priority = {life.rid: life.priority for life in driver.truth.lives.values()}
    if len(s.running) < driver.scope.slots:
        return
    for r in s.requests:
        lower = [x for x in driver.truth.steps[-1].tokens if priority[x] > priority.get(r.rid, 0)]
        if r.status == "WAITING" and r.queues and lower:
            text = (
                f"{r.rid} (priority {priority[r.rid]}) waits while {', '.join(lower)} of a lower class go on"
            )
            yield Violation(CLASS_ORDER, r.rid, text)


def _head(driver: Subject, s: Snapshot) -> Iterator[Violation]:
    if len(s.running) >= driver.scope.slots or any(r.status == "PREEMPTED" for r in s.requests):
        return
    for r in s.requests:
        behind = r.status == "WAITING" and r.queues == ("waiting",) and s.waiting[0] != r.rid
        if behind and driver.scope.need(r.known) <= s.free_count:
            text = f"{r.rid} fits in {s.free_count} free blocks and waits behind {s.waiting[0]}"
            yield Violation(NO_HOLD_UP, r.rid, text)
