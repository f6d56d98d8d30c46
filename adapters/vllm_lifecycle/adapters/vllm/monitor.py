"""The specification's properties on a scheduler that somebody else drives: a user's own test.

The public calls of one scheduler object are listened to; after each the state is read and judged exactly as in an exploration.
The truth comes from what passes through: a step is in flight from the `SchedulerOutput` that tells of it until its answer, a
transfer from the connector's own answer until a worker's report.  Calls that the scheduler makes to itself are not judged.
What only an exploration can judge (progress; the encoder cache, whose sizes it must know) is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from vllm_lifecycle.spec.lang.sparse import Sparse

from . import rules
from .binding import bind
from .driver import Driver, EngineDied
from .events import Abort, Add, Answer, Close, Continue, Event, Pause, Reset, Resume, Schedule, describe
from .extension import Extension
from .ledger import Ledger
from .listen import listen
from .report import StepLine, changes
from .scope import NO_MATCH, Scope
from .snapshot import Observer, Snapshot
from .truth import Life, Step, Transfer, Truth
from .verdicts import Judge, death_claim
from .worker import known_tokens, record_outputs, record_step

Fail = Callable[[str], None]
Arguments = tuple[Any, ...]
Run = Callable[[], Any]
"""Makes the call itself, and writes down what it returned."""


class NotFresh(Exception):
    """The scheduler has requests already, so what is in flight is not known; one line."""


def scope_of(scheduler: Any) -> Scope:
    """The scope that a scheduler was built for, read off its configuration."""
    config = scheduler.vllm_config
    asynchronous = bool(getattr(config.scheduler_config, "async_scheduling", False))
    stages = int(config.parallel_config.pipeline_parallel_size)
    return Scope(
        "the scheduler of this test",
        requests=1 << 20,
        adds=1 << 20,
        blocks=scheduler.kv_cache_config.num_blocks - 1,
        block_size=scheduler.block_size,
        slots=scheduler.scheduler_config.max_num_seqs,
        depth=2 if asynchronous else stages,
        asynchronous=asynchronous,
        token_budget=scheduler.scheduler_config.max_num_batched_tokens,
        model_length=config.model_config.max_model_len,
        connector=getattr(scheduler, "connector", None) is not None,
        groups=len(scheduler.kv_cache_config.kv_cache_groups),
        drafts=int(getattr(scheduler, "num_spec_tokens", 0)),
    )


class Watched(Driver):
    """A scheduler that is driven from outside, as the properties see it."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.observer = Observer(scheduler)
        self.scope = scope_of(scheduler)
        self.truth = Truth()
        self.extension = Extension(self)


class Monitor:
    """Judges one scheduler after each public call; `fail` is told the sequence when a property falls.

    `accept` names properties whose fall is known and passed over.  Raises NotFresh, or correspondence.MissingSeam when the
    object is no scheduler that can be observed.
    """

    def __init__(self, scheduler: Any, fail: Fail, accept: Collection[str] = ()) -> None:
        self.world = Watched(scheduler)
        if self.world.observer.get("tracked requests"):
            raise NotFresh("the scheduler has requests already: watch it before its first add_request")
        self.judge = Judge(self.world.scope)
        self.fail, self.accept = fail, frozenset(accept)
        self.steps: list[StepLine] = []
        self.failure = ""
        self._inside = False
        self._breach = ""
        self._seen = self._look()
        self._present: set[tuple[str, str]] = set()
        self._watch()

    @property
    def truth(self) -> Truth:
        """What is in flight."""
        return self.world.truth

    def breach(self, who: str, rule: str) -> None:
        """Somebody outside the scheduler broke a rule."""
        self.truth.breakers.append(who)
        self._breach = self._breach or f"{who}: {rule}"

    def stop(self) -> None:
        """Take the listeners off again."""
        for name in CALLS:
            vars(self.world.scheduler).pop(name, None)

    def _watch(self) -> None:
        scheduler = self.world.scheduler
        for name, call in CALLS.items():
            if hasattr(scheduler, name):
                setattr(scheduler, name, self._listening(getattr(scheduler, name), call))
        connector = self.world.observer.get("connector")
        if connector is not None:
            scope = self.world.scope
            ledger = Ledger(self.truth, scope.block_size, self.world.observer.null)
            listen(connector, ledger, lambda rule: self.breach("connector", rule))

    def _listening(self, original: Any, call: Call) -> Any:
        def judged(*args: Any, **more: Any) -> Any:
            if self._inside:
                return original(*args, **more)
            if self.failure:
                self.fail(self.failure)
            self._inside = True
            try:
                return self._judged(original, call, args, more)
            finally:
                self._inside = False

        return judged

    def _judged(self, original: Any, call: Call, args: Arguments, more: dict[str, Any]) -> Any:
        self._breach = ""
        event, run = call(self, original, args, more)
        try:
            result = run()
        except Exception as error:
            death = EngineDied(error)
            self._tell(describe(event), [f"the engine dies: {death}"])
            self._falls(death_claim(self.world), str(death))
            raise
        before, old = self._seen
        if len(self.truth.steps) > self.world.scope.depth:
            self.world.scope = replace(self.world.scope, depth=len(self.truth.steps))
        now, new = self._seen = self._look()
        self._tell(describe(event), changes(before, now))
        found = self.judge.violations(self.world, event, before, old, now, new)
        fresh = [v for v in found if v.key not in self._present and v.claim not in self.accept]
        self._present = {v.key for v in found}
        if fresh:
            self._falls(fresh[0].claim, fresh[0].message)
        elif not (now.requests or now.flights or now.steps or self._present):
            self.steps.clear()
        return result

    def _look(self) -> tuple[Snapshot, Sparse]:
        snapshot = self.world.snapshot()
        return snapshot, bind(self.world, snapshot, self.judge.names)

    def _tell(self, call: str, changed: list[str]) -> None:
        self.steps.append(StepLine(call, self._breach, tuple(changed)))

    def _falls(self, claim: str, message: str) -> None:
        if claim in self.accept:
            return
        lines = [f"{claim}", f"  {message}", "  the calls since the scheduler was last empty:"]
        for number, step in enumerate(self.steps, 1):
            lines += step.lines(number)
        self.failure = "\n".join(lines)
        self.fail(self.failure)

    def add(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`add_request`: a new incarnation, or the next chunk of a session."""
        request = args[0] if args else more["request"]
        rid, truth = request.request_id, self.truth
        truth.adds += 1
        known = truth.lives.get(rid)
        session = bool(getattr(request, "resumable", False))
        run = partial(original, *args, **more)
        if known is not None and known.session and not (known.client_done or known.closed):
            known.chunks, known.closed = known.chunks + session, not session
            return Continue(rid, request.num_prompt_tokens) if session else Close(rid), run
        if known is not None:
            truth.past.append(known)
            if not known.client_done:
                self.breach("client", rules.ID_IN_USE)
        event = Add(
            rid, request.num_prompt_tokens, request.max_tokens, priority=request.priority, session=session
        )
        truth.lives[rid] = Life(
            rid,
            0 if known is None else known.epoch + 1,
            request,
            NO_MATCH,
            False,
            event.prompt,
            event.answer,
            session,
            truth.adds,
            event.priority,
        )
        return event, run

    def finish(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`finish_requests`: the clients of these requests want nothing more."""
        named = args[0] if args else more.pop("request_ids")
        tracked = self.world.observer.get("tracked requests")
        rids = [named] if isinstance(named, str) else list(tracked if named is None else named)
        for rid in rids:
            if rid in self.truth.lives:
                self.truth.lives[rid].client_done = True
        run = partial(original, named if named is None else rids, *args[1:], **more)
        return Abort(", ".join(rids)), run

    def schedule(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`schedule`: the step it returns is in flight."""
        known = known_tokens(self.world)

        def run() -> Any:
            output = original(*args, **more)
            record_step(self.world, output, known)
            return output

        return Schedule(), run

    def answer(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`update_from_output`: the step is over, and the transfers that its answer reports."""
        output, answer = (*args, *more.values())[:2]
        step = next((s for s in self.truth.steps if s.output is output), None)
        if step is None:
            self.breach("worker", rules.ANSWER_OF_A_STEP)
        else:
            if step is not self.truth.steps[0]:
                self.breach("worker", rules.ANSWERED_IN_ORDER)
            if set(step.tokens) - set(answer.req_ids):
                self.breach("worker", rules.EVERY_ID_ANSWERED)
            self.truth.steps.remove(step)
        self._reports(answer.kv_connector_output, step)

        def run() -> Any:
            outputs = original(*args, **more)
            record_outputs(self.truth, outputs)
            return outputs

        return Answer(), run

    def _reports(self, report: Any, step: Step | None) -> None:
        if report is None:
            return
        failed = set(getattr(report, "failed_recving", None) or ())
        self.truth.mishap |= bool(failed or report.invalid_block_ids)
        if report.invalid_block_ids and self.world.scope.groups > 1:
            self.breach("connector", rules.HYBRID_FAILS_BY_REQUEST)
        for rid in (report.finished_recving or set()) | failed:
            moving = self._reported("receive", rid, step)
            self.truth.delivered |= {(rid, moving.epoch)} if moving else set()
        for rid in report.finished_sending or ():
            self._reported("send", rid, step)

    def _reported(self, kind: str, rid: str, step: Step | None) -> Transfer | None:
        moving = self.truth.transfer(kind, rid)
        if step is None or moving is None or not self.truth.can_tell(step, moving):
            self.breach("connector", rules.REPORT_OF_A_TRANSFER)
            return None
        self.truth.transfers.remove(moving)
        return moving

    def reset(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`reset_prefix_cache`."""
        forced = bool(args[0] if args else more.get("reset_running_requests", False))
        self.truth.mishap |= forced
        return Reset(forced), partial(original, *args, **more)

    def pause(self, original: Any, args: Arguments, more: dict[str, Any]) -> tuple[Event, Run]:
        """`set_pause_state`."""
        state = (*args, *more.values())[0].name
        self.truth.pause = "" if state == "UNPAUSED" else state
        event = Pause(state == "PAUSED_ALL") if self.truth.pause else Resume()
        return event, partial(original, *args, **more)


Call = Callable[[Monitor, Any, Arguments, dict[str, Any]], tuple[Event, Run]]
CALLS: dict[str, Call] = {
    "add_request": Monitor.add,
    "finish_requests": Monitor.finish,
    "schedule": Monitor.schedule,
    "update_from_output": Monitor.answer,
    "reset_prefix_cache": Monitor.reset,
    "set_pause_state": Monitor.pause,
}
"""The public calls that are listened to, and what each says about the world."""
