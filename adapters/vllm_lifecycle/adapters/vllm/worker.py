"""The worker's part: dispatching a step and answering it.

A worker answers steps in the order of their dispatch.  A request samples in a step when that step computes its last
known token; a prefill chunk samples nothing.  What is known is read before `schedule`, so that placeholders of
asynchronous scheduling count as known exactly when the worker would know them.
"""

from __future__ import annotations

from typing import Any, Protocol

from .config import SENTINEL_TOKEN, STOP_TOKEN, Workshop
from .events import Answer
from .extension import Extension
from .subject import Subject
from .truth import Outbox, Step, Truth

TOKEN = 50
BAD_ENDS = frozenset({"FINISHED_ABORTED", "FINISHED_ERROR", "FINISHED_IGNORED"})
"""Ends after which nobody fetches what a transfer offers."""


class Served(Subject, Protocol):
    """A subject with the means to answer it."""

    shop: Workshop

    @property
    def extension(self) -> Extension:
        """What its family adds."""

    def take_outbox(self) -> Outbox:
        """What the connector's worker side has to say, once."""


def dispatch(driver: Served) -> None:
    """Call `schedule` and put the step in flight."""
    known = known_tokens(driver)
    record_step(driver, driver.scheduler.schedule(), known)


def known_tokens(driver: Served) -> dict[str, int]:
    """Tokens that each request will have known when the step that is scheduled next runs."""
    observer = driver.observer
    return {
        rid: observer.of(r, "known tokens") + observer.of(r, "output placeholders")
        for rid, r in observer.get("tracked requests").items()
    }


def record_step(driver: Served, output: Any, known: dict[str, int]) -> None:
    """What `schedule` returned is in flight from now on."""
    truth, observer = driver.truth, driver.observer
    truth.dispatched += 1
    tokens: dict[str, int] = dict(output.num_scheduled_tokens)
    start = _starts(output)
    drafts = {rid: len(ids) for rid, ids in output.scheduled_spec_decode_tokens.items()}
    ends = {rid: start.get(rid, 0) + n - drafts.get(rid, 0) for rid, n in tokens.items()}
    loads, truth.loading = truth.loading, {}
    truth.steps.append(
        Step(
            number=truth.dispatched,
            output=output,
            tokens=tokens,
            blocks={rid: observer.table(rid) for rid in tokens},
            tags={rid: driver.tag(rid) for rid in tokens},
            samples=frozenset(rid for rid in tokens if ends[rid] >= known.get(rid, 0)),
            drafts=drafts,
            loads={rid: blocks for rid, blocks in loads.items() if rid in tokens},
            encodes={
                rid: tuple(truth.lives[rid].request.mm_features[i].identifier for i in inputs)
                for rid, inputs in output.scheduled_encoder_inputs.items()
            },
            drops=tuple(getattr(output, "free_encoder_mm_hashes", ())),
        )
    )
    driver.extension.dispatched(truth.steps[-1])
    for new in output.scheduled_new_reqs:
        if new.req_id in truth.lives and not getattr(driver.scheduler, "use_v2_model_runner", False):
            life = truth.lives[new.req_id]
            turn = life.request.num_prompt_tokens
            life.told_new[turn] = life.told_new.get(turn, 0) + 1
    for rid, end in ends.items():
        owner = truth.lives.get(rid)
        if owner is not None:
            owner.most_computed = max(owner.most_computed, end)
    for transfer in truth.transfers:
        if transfer.announced is None and transfer.kind != "handoff":
            transfer.announced = truth.dispatched


def _starts(output: Any) -> dict[str, int]:
    """Computed tokens at the start of the step, per scheduled request."""
    start = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    if hasattr(cached, "req_ids"):
        start.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    else:
        start.update((c.req_id, c.num_computed_tokens) for c in cached)
    return start


def answer_step(driver: Served, event: Answer) -> None:
    """Answer the oldest step: call `update_from_output`, then hand over the next drafts."""
    truth, shop = driver.truth, driver.shop
    step = truth.steps.pop(0)
    out = driver.take_outbox()
    truth.delivered |= {(t.rid, t.epoch) for t in truth.undelivered if t.kind == "receive"}
    truth.undelivered.clear()
    report = shop.report(set(out.sent), set(out.received), set(out.failed), out.bad_blocks) if out else None
    sampled: dict[str, list[int]] = {}
    pooled = frozenset(r for r in step.samples if r in truth.lives and truth.lives[r].pooling)
    for rid in step.tokens:
        if rid == event.omit:
            continue
        if rid not in step.samples or rid in pooled or rid == event.empty:
            sampled[rid] = []
        elif rid == event.stop:
            sampled[rid] = [STOP_TOKEN]
        elif rid == event.sentinel:
            sampled[rid] = [SENTINEL_TOKEN]
        else:
            sampled[rid] = [TOKEN] * (1 + min(event.accepted, step.drafts.get(rid, 0)))
    answer = shop.answer(sampled, report, pooled - {event.empty})
    driver.extension.answering(step, answer)
    record_outputs(truth, driver.scheduler.update_from_output(step.output, answer))
    if driver.scope.drafts and not driver.scope.asynchronous and step.tokens:
        rids = [rid for rid in sampled if sampled[rid]]
        proposal = [[TOKEN] * driver.scope.drafts for _ in rids]
        driver.scheduler.update_draft_token_ids(shop.draft_cls(rids, proposal))


def record_outputs(truth: Truth, outputs: Any) -> None:
    """What `update_from_output` returned reaches the clients."""
    for group in outputs.values():
        for one in group.outputs:
            truth.emitted += len(one.new_token_ids) + (one.finish_reason is not None)
            life = truth.lives.get(one.request_id)
            if life is not None and one.finish_reason is not None and life.request.is_finished():
                life.client_done = True
                if life.request.status.name not in BAD_ENDS and life.delivered is None:
                    life.delivered = frozenset(one.kv_transfer_params or ())
