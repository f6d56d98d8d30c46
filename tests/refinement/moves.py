"""What can be done to a kernel from a given state, as small named moves: clients, the pass, the worker, the connector.

A move names requests by their ids and rows by their place, so that it can be made from the same state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.refinement.lockstep import Lockstep
from tests.refinement.requests import LONGEST, learn, new

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.kernel.steps import Row
from vllm_lifecycle.statemachine.kernel.store import Hit

Move = tuple[str, Callable[[], object]]


def found_in(hit: Hit | None) -> frozenset[int]:
    """The blocks that are shared, as the specification's set."""
    return frozenset(hit.blocks[0]) if hit else frozenset()


class Driver:
    """Lists and performs the moves of a lockstep pair."""

    def __init__(self, twin: Lockstep, sizes: tuple[int, ...] = (1, 2)) -> None:
        self.twin = twin
        self.sizes = sizes
        self.features = set(twin.spec.machine.features)

    def moves(self) -> Iterator[Move]:
        """Every move that makes sense to try; the kernel may refuse it."""
        if self.twin.answered is not None:
            yield from self._update()
        elif self.twin.building is not None:
            yield from self._pass()
        else:
            yield from self._between()

    def _between(self) -> Iterator[Move]:
        twin, kernel = self.twin, self.twin.kernel
        for r in twin.requests:
            for prompt in self.sizes:
                yield f"add {r} {prompt}", partial(self.add, r, prompt)
                if "sessions" in self.features:
                    yield f"open {r} {prompt}", partial(self.add, r, prompt, resumable=True)
            if "grammar" in self.features:
                yield f"add structured {r}", partial(self.add, r, 1, Status.WAITING_FOR_GRAMMAR)
        for seq in list(kernel.seqs.values()):
            for hold in (False, True) if "send" in self.features else (False,):
                yield (
                    f"abort {seq.id} {hold}",
                    partial(self.finish, seq.id, Status.FINISHED_ABORTED, hold),
                )
                if seq in kernel.idle:
                    yield (
                        f"close {seq.id} {hold}",
                        partial(self.finish, seq.id, Status.FINISHED_STOPPED, hold),
                    )
            if seq in kernel.idle and SessionKernel.kept(seq) < LONGEST:
                yield f"more {seq.id}", partial(self.more, seq.id)
        for k in twin.slots:
            if k not in twin.flights:
                yield f"begin pass {k}", partial(self.begin, k)
                break
        if twin.flights:
            yield "output", self.output
        if "reset" in self.features:
            yield "reset", partial(twin.do, "reset", kernel.reset)
            yield "forced reset", self.forced_reset

    def _pass(self) -> Iterator[Move]:
        kernel = self.twin.kernel
        taken = {row.seq for row in self.twin.rows}
        for seq in list(kernel.seqs.values()):
            lacking = len(seq.tokens) - seq.computed
            if seq.status in (Status.WAITING, Status.PREEMPTED):
                for n in range(1, lacking + 1):
                    yield f"admit {seq.id} {n}", partial(self.admit, seq.id, n)
                if "load" in self.features:
                    yield f"load {seq.id}", partial(self.load, seq.id)
            if seq.status is Status.WAITING_FOR_REMOTE_KVS:
                yield f"promote {seq.id}", partial(self.promote, seq.id)
            if seq.status is Status.WAITING_FOR_GRAMMAR:
                yield (
                    f"grammar {seq.id}",
                    partial(self.grammar_ready, seq.id),
                )
                yield (
                    f"grammar fails {seq.id}",
                    partial(self.finish, seq.id, Status.FINISHED_ERROR, False),
                )
            if seq.status is Status.RUNNING and seq not in taken:
                for n in range(1, lacking + 1):
                    yield f"continue {seq.id} {n}", partial(self.go_on, seq.id, n)
            if seq.status is Status.RUNNING and "preemption" in self.features:
                yield f"preempt {seq.id}", partial(self.preempt, seq.id)
            if "sessions" in self.features:
                yield f"give up {seq.id}", partial(self.give_up, seq.id)
            if "handoff" in self.features:
                yield f"ship {seq.id}", partial(self.ship, seq.id)
        yield "dispatch", self.dispatch

    def _update(self) -> Iterator[Move]:
        assert self.twin.answered is not None
        _, rows = self.twin.answered
        if "load" in self.features:
            for r in self.twin.requests:
                yield f"received {r}", partial(self.signal, "receive_finished", r)
                yield f"sent {r}", partial(self.signal, "send_finished", r)
                if "load_failure" in self.features:
                    yield f"failed {r}", partial(self.fail_load, r)
        if "handoff" in self.features:
            for seq in list(self.twin.kernel.seqs.values()):
                for n in range(1, seq.computed + 1):
                    yield f"trigger {seq.id} {n}", partial(self.trigger, seq.id, n)
            for r in self.twin.requests:
                yield f"acknowledged {r}", partial(self.signal, "handoff_acknowledged", r)
        if not rows:
            yield "end of update", self.end
            return
        row = rows[0]
        yield f"row of {row.seq.id}", self.credit
        yield f"stop {row.seq.id}", partial(self.stop, False)
        if "send" in self.features:
            yield f"stop and hold {row.seq.id}", partial(self.stop, True)
        if "sessions" in self.features:
            yield f"turn of {row.seq.id}", self.end_turn

    # the moves

    def _of(self, r: str) -> Seq:
        return self.twin.kernel.seqs[r]

    def add(self, r: str, prompt: int, status: Status = Status.WAITING, *, resumable: bool = False) -> object:
        call = partial(self.twin.kernel.add, new(r, prompt, status))
        return self.twin.do("add", call, r=r, resumable=resumable)

    def grammar_ready(self, r: str) -> object:
        return self.twin.do("grammar_ready", partial(self.twin.kernel.grammar_ready, self._of(r)), r=r)

    def finish(self, r: str, reason: Status, hold: bool) -> object:
        self.twin.hold = hold
        return self.twin.do("finish", partial(self.twin.kernel.finish, self._of(r), reason), r=r)

    def begin(self, k: int) -> None:
        self.twin.building = k
        self.twin.rows = []
        self.twin.move("begin_pass", k=k)

    def admit(self, r: str, n: int) -> object:
        kernel, seq = self.twin.kernel, self._of(r)
        hit = None if seq.held_kv else kernel.store.lookup(seq)
        found = hit.tokens if hit else 0
        if n + found > len(seq.tokens):
            return None
        answer = self.twin.do("admit", partial(kernel.admit, seq, n, hit), r=seq.id, hits=found_in(hit))
        return self._row(seq, n, answer)

    def go_on(self, r: str, n: int) -> object:
        seq = self._of(r)
        answer = self.twin.do("resume_running", partial(self.twin.kernel.resume_running, seq, n), r=seq.id)
        return self._row(seq, n, answer)

    def _row(self, seq: Seq, n: int, answer: object) -> object:
        if isinstance(answer, tuple):
            self.twin.rows.append(Row(seq, seq.run, n, 0, 0))
        return answer

    def preempt(self, r: str) -> object:
        seq = self._of(r)
        answer = self.twin.do("preempt", partial(self.twin.kernel.preempt, seq), r=seq.id)
        if not isinstance(answer, Refused):
            self.twin.rows = [row for row in self.twin.rows if row.seq is not seq]
        return answer

    def load(self, r: str) -> object:
        kernel, seq = self.twin.kernel, self._of(r)
        hit = kernel.store.lookup(seq)
        external = len(seq.tokens) - hit.tokens
        return self.twin.do(
            "start_receive", partial(kernel.start_receive, seq, hit, external), r=seq.id, hits=found_in(hit)
        )

    def promote(self, r: str) -> object:
        seq = self._of(r)
        whole = seq.receive is not None and seq.receive.state is State.DONE and seq.receive.valid is None
        computed = len(seq.tokens) - 1 if whole and len(seq.tokens) > 1 else 0
        return self.twin.do("promote", partial(self.twin.kernel.promote, seq, computed), r=seq.id)

    def dispatch(self) -> None:
        twin = self.twin
        assert twin.building is not None
        k, twin.building = twin.building, None
        rows, self.twin.rows = self.twin.rows, []

        def leave() -> int:
            twin.flights[k] = twin.kernel.dispatch(rows, [])
            return 1

        twin.do("dispatch", leave, k=k)

    def output(self) -> None:
        twin = self.twin
        k = min(twin.flights, key=lambda slot: twin.flights[slot].number)
        step = twin.flights[k]
        twin.do("receive_output", partial(twin.kernel.receive_output, step), k=k)
        self.twin.answered = k, list(step.rows)

    def credit(self) -> None:
        k, row = self._first_row()
        seq = row.seq
        self.twin.do("close_row", partial(self._close, row), r=seq.id, k=k)
        if seq.status is Status.RUNNING and seq.computed == len(seq.tokens) < LONGEST:
            learn(seq, 7)

    def stop(self, hold: bool) -> object:
        self.twin.hold = hold
        _, row = self._first_row()
        seq = row.seq
        worth = seq.status in (Status.RUNNING, Status.PREEMPTED) and row.run >= seq.deliver_from
        if not worth:
            return None
        kernel = self.twin.kernel
        call = partial(kernel.finish, seq, Status.FINISHED_STOPPED)
        return self.twin.do("finish", lambda: (self._close(row), call()), r=seq.id)

    def end_turn(self) -> object:
        k, row = self._first_row()
        seq, kernel = row.seq, self._talking()
        if seq.status not in (Status.RUNNING, Status.PREEMPTED) or not self.twin.says("resumable", seq.id):
            return None  # what is resumable is known to the client and the specification only
        if row.run < seq.deliver_from:
            return None
        if len(seq.tokens) < LONGEST:
            learn(seq, 7)

        def ends() -> str:
            worth = self._close(row)
            kernel.end_turn(seq)
            return worth

        return self.twin.do("end_turn", ends, r=seq.id, k=k)

    def more(self, r: str) -> object:
        seq, kernel = self._of(r), self._talking()

        def joins() -> int:
            kernel.continue_session(seq, (0,), LONGEST)
            learn(seq)
            return 1

        return self.twin.do("continue_session", joins, r=r)

    def give_up(self, r: str) -> object:
        call = partial(self._talking().give_up_kept_blocks, self._of(r))
        return self.twin.do("give_up_kept_blocks", call, r=r)

    def _talking(self) -> SessionKernel:
        assert isinstance(self.twin.kernel, SessionKernel)
        return self.twin.kernel

    def _first_row(self) -> tuple[int, Row]:
        assert self.twin.answered is not None
        k, rows = self.twin.answered
        return k, rows[0]

    def _close(self, row: Row) -> str:
        """The row is worked off, in the kernel and in the answer."""
        assert self.twin.answered is not None
        k, rows = self.twin.answered
        rows.remove(row)
        self.twin.flights[k].rows.remove(row)
        return self.twin.kernel.close_row(row)

    def end(self) -> None:
        assert self.twin.answered is not None
        k, _ = self.twin.answered
        self.twin.answered = None
        del self.twin.flights[k]
        self.twin.move("finish_update", k=k)

    def trigger(self, r: str, n: int) -> object:
        seq = self._of(r)
        call = partial(self._handing().trigger_handoff, seq, n)
        return self.twin.do("trigger_handoff", call, r=seq.id, snapshot=frozenset(seq.table[:n]))

    def ship(self, r: str) -> object:
        return self.twin.do("ship_handoff", partial(self._handing().ship_handoff, self._of(r)), r=r)

    def _handing(self) -> HandoffKernel:
        assert isinstance(self.twin.kernel, HandoffKernel)
        return self.twin.kernel

    def signal(self, name: str, r: str) -> object:
        return self.twin.do(name, partial(getattr(self.twin.kernel, name), r), r=r)

    def fail_load(self, r: str) -> object:
        kernel = self.twin.kernel

        def fails() -> None:
            kernel.receive_failed(r, 0)
            kernel.receive_finished(r)

        return self.twin.do("receive_failed", fails, r=r)

    def forced_reset(self) -> None:
        twin, kernel = self.twin, self.twin.kernel
        twin.move("begin_forced_reset")
        for seq in kernel.running[::-1]:
            twin.do("preempt", partial(kernel.preempt, seq, deliver=False), r=seq.id)
        twin.do("forget_cache", lambda: kernel.forget_cache() or 0)
