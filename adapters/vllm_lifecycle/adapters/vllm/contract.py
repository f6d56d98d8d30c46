"""What the API's contract allows in the driver's present state.

An event is impossible (nothing to apply it to), legal, or a breach that the environment can commit; a breach names the
rule broken, and `events.party` says by whom.  The rules are those of the engine loop (who may call when), of the worker
(answers in order, for exactly the scheduled ids) and of the connector interface (a report belongs to a transfer that
was announced and not yet reported, see `Truth.can_tell`; at least one token is left to compute; failures by block only for
one group).
"""

from __future__ import annotations

from typing import Literal

from . import rules
from .driver import Driver
from .events import (
    Abort,
    Add,
    Answer,
    Close,
    Continue,
    Decide,
    Event,
    Grammar,
    Pause,
    Report,
    Reset,
    Resume,
    Schedule,
)

LEGAL = ""
IMPOSSIBLE = "impossible"
Judgement = str
"""`LEGAL`, `IMPOSSIBLE`, or the rule that the event breaks."""


def judge(driver: Driver, event: Event) -> Judgement:
    """Judge one event in the present state."""
    truth = driver.truth
    match event:
        case Add():
            return _add(driver, event)
        case Abort(rid=rid):
            life = truth.lives.get(rid)
            return _possible(life is not None and (not life.client_done or driver.tracked(rid) is not None))
        case Continue(rid=rid):
            life = truth.lives.get(rid)
            return _possible(
                driver.window and bool(life and life.session and not (life.client_done or life.closed))
            )
        case Close(rid=rid):
            life = truth.lives.get(rid)
            return _possible(
                driver.window and bool(life and life.session and not (life.client_done or life.closed))
            )
        case Reset():
            return _possible(driver.window)
        case Pause():
            return _possible("pause" in driver.shop.offers and driver.window and not truth.pause)
        case Resume():
            return _possible(driver.window and bool(truth.pause))
        case Schedule():
            return _possible(driver.window and driver.awake)
        case Answer():
            return _answer(driver, event)
        case Report():
            return _report(driver, event)
        case Decide(rid=rid):
            life = truth.lives.get(rid)
            return _possible(bool(life and life.match.span == "unknown" and not life.client_done))
        case Grammar(rid=rid):
            life = truth.lives.get(rid)
            return _possible(bool(life and life.grammar == "pending" and not life.client_done))
        case _:
            verdict = driver.extension.judge(event)
            return IMPOSSIBLE if verdict is None else verdict


def _possible(yes: bool) -> Judgement:
    return LEGAL if yes else IMPOSSIBLE


def _add(driver: Driver, event: Add) -> Judgement:
    truth = driver.truth
    if event.session and "sessions" not in driver.shop.offers:
        return IMPOSSIBLE
    if not driver.window or truth.adds >= driver.scope.adds:
        return IMPOSSIBLE
    life = truth.lives.get(event.rid)
    if life is not None and not life.client_done:
        return IMPOSSIBLE if life.session else rules.ID_IN_USE
    if event.match.span == "all" and not event.match.between_steps:
        return rules.TOKEN_LEFT
    return LEGAL


def _answer(driver: Driver, event: Answer) -> Judgement:
    if not driver.truth.steps:
        return IMPOSSIBLE
    step = driver.truth.steps[0]
    chosen = {event.stop, event.empty, event.sentinel} - {""}
    if not chosen <= step.samples:
        return IMPOSSIBLE
    if event.omit:
        return rules.EVERY_ID_ANSWERED if event.omit in step.tokens else IMPOSSIBLE
    if event.accepted < 9 and not any(step.drafts.values()):
        return IMPOSSIBLE
    return rules.A_TOKEN_IS_SAMPLED if event.empty else LEGAL


def _report(driver: Driver, event: Report) -> Judgement:
    truth, rid = driver.truth, event.rid
    if not truth.steps or not driver.scope.connector:
        return IMPOSSIBLE
    kind: Literal["send", "receive"] = "send" if event.kind == "sent" else "receive"
    if event.kind == "block failed":
        if not truth.reportable("receive", rid) and rid not in truth.steps[0].loads:
            return IMPOSSIBLE
        return LEGAL if driver.scope.groups == 1 else rules.HYBRID_FAILS_BY_REQUEST
    if event.kind == "receive failed" and "failed receives" not in driver.shop.offers:
        return IMPOSSIBLE
    if truth.reportable(kind, rid):
        return LEGAL
    if event.kind == "receive failed" or rid in (
        truth.outbox.sent if kind == "send" else truth.outbox.received
    ):
        return IMPOSSIBLE
    return rules.REPORT_OF_A_TRANSFER
