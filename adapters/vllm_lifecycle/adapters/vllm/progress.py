"""What becomes of a state when everybody but the scheduler is fair: progress, hangs, leaks.

From a state the environment goes on fairly: every transfer is completed and reported, every step is answered with a
token per request, grammars get ready, put-off matches are decided, a pause ends, and no client does anything more (so
a parked streaming session stays parked).  Then every request that fits must finish, and at the end the pool must be
whole.  The continuation is deterministic; states that it passed through with a good end are remembered.
"""

from __future__ import annotations

from collections import Counter

from .canonical import Key, state_key
from .driver import Driver
from .events import Answer, Decide, Event, Grammar, Report, Resume, Schedule
from .scope import NO_MATCH, Scope
from .snapshot import RequestView, Snapshot
from .verdicts import LEAK, STUCK
from .violation import Violation

ROUNDS = 120
LOADED = ("WAITING", "WAITING_FOR_REMOTE_KVS")
"""Statuses of a request that has blocks since it was loaded, and does not run yet."""
PATIENCE_ROUNDS = 10
"""Rounds (a pass and its answers) without any token, completion or end before the state is called stuck."""


def fair_events(driver: Driver) -> list[Event]:
    """What the environment owes at this moment, in order."""
    truth = driver.truth
    owed: list[Event] = []
    if truth.pause and driver.window:
        owed.append(Resume())
    for rid, life in truth.lives.items():
        if life.client_done:
            continue
        if life.match.span == "unknown":
            owed.append(Decide(rid, NO_MATCH))
        if life.grammar == "pending":
            owed.append(Grammar(rid, True))
    owed += [
        Report("received" if t.kind == "receive" else "sent", t.rid)
        for t in truth.transfers
        if t.kind != "handoff" and truth.reportable(t.kind, t.rid)
    ]
    return owed + driver.extension.owed()


def continue_fairly(driver: Driver, good: set[Key], used: list[Event]) -> Violation | None:
    """Go on fairly to the end, noting the events used.  Returns what never happens; raises EngineDied."""
    passed: list[Key] = []
    idle, before = 0, _progress(driver)
    for _ in range(ROUNDS):
        key = state_key(driver)
        if key in good:
            good.update(passed)
            return None
        passed.append(key)
        acted = _round(driver, used)
        after = _progress(driver)
        idle = 0 if after > before else idle + 1
        before = after
        if not acted or idle > PATIENCE_ROUNDS:
            break
    verdict = _verdict(driver, idle)
    if verdict is None:
        good.update(passed)
    return verdict


def _round(driver: Driver, used: list[Event]) -> bool:
    """Fill the pipeline, then answer one step; False when there was nothing to do."""
    acted = False
    while driver.window and driver.awake:
        acted |= _do(driver, Schedule(), used)
        if not driver.truth.steps[-1].tokens:
            break
    for event in fair_events(driver):
        acted |= _do(driver, event, used)
    if driver.truth.steps:
        acted |= _do(driver, Answer(), used)
    return acted


def _do(driver: Driver, event: Event, used: list[Event]) -> bool:
    used.append(event)
    driver.apply(event)
    return True


def _progress(driver: Driver) -> int:
    truth = driver.truth
    return truth.emitted + sum(life.most_computed for life in (*truth.lives.values(), *truth.past))


def _verdict(driver: Driver, idle: int) -> Violation | None:
    truth, scope = driver.truth, driver.scope
    s = driver.snapshot()
    waiting = [x for x in truth.lives.values() if not x.client_done and not x.closed]
    parked = [x for x in waiting if (v := s.request(x.rid)) and v.status == "WAITING_FOR_STREAMING_REQ"]
    room = s.free_count if parked else scope.blocks
    for life in waiting:
        view = s.request(life.rid)
        if view is None:
            return Violation(STUCK, life.rid, f"{life.rid} was forgotten without a final output", "forgotten")
        if life in parked:
            continue
        need = scope.need(max(view.known, life.prompt + life.answer)) - (len(view.table) if parked else 0)
        if need <= room:
            text = (
                f"{life.rid} is {view.status} for ever: it needs {need} of {room} blocks, every transfer was "
                f"acknowledged and every step answered, and {idle} passes brought nothing"
            )
            return Violation(STUCK, life.rid, text, _mechanism(s, view, scope))
    if not waiting and not truth.steps and s.free_count != scope.blocks:
        lost = scope.blocks - s.free_count
        return Violation(
            LEAK, "pool", f"all requests ended and all transfers are done, {lost} blocks stay held"
        )
    return None


def _mechanism(s: Snapshot, stuck: RequestView, scope: Scope) -> str:
    """Where the stuck request is, and who has the blocks meanwhile (loading, and loaded but not admitted, are one)."""
    where = f"{stuck.status} in {'/'.join(stuck.queues) or 'no queue'}"
    holders = Counter("loaded" if r.status in LOADED else r.status for r in s.requests if r.table)
    held = ", ".join(f"{n} {status}" for status, n in sorted(holders.items())) or "nobody"
    return f"{where}; blocks are held by {held}{'; look-ahead' if scope.look_ahead else ''}"
