"""What can be done to a kernel from a given state, as small named moves: clients, the pass, the worker, the connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.refinement.lockstep import Lockstep

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row
from vllm_lifecycle.statemachine.kernel.store import Hit

Move = tuple[str, Callable[[], object]]
LONGEST = 2
"""Tokens that a request may have; a prompt has one or two."""


def learn(seq: Seq, *tokens: int) -> None:
    """Tokens become known; each full block has its key."""
    seq.tokens.extend(tokens)
    seq.outputs.extend(tokens)
    seq.hashes[:] = [tuple(seq.tokens[: i + 1]) for i in range(len(seq.tokens))]


def new(r: str, prompt: int, status: Status = Status.WAITING) -> Seq:
    """A request with `prompt` tokens, equal for all requests."""
    seq = Seq(r, None, [0] * prompt, [], [], limit=LONGEST, status=status)
    learn(seq)
    return seq


def found_in(hit: Hit | None) -> frozenset[int]:
    """The blocks that are shared, as the specification's set."""
    return frozenset(hit.blocks[0]) if hit else frozenset()


class Driver:
    """Lists and performs the moves of a lockstep pair."""

    def __init__(self, twin: Lockstep, sizes: tuple[int, ...] = (1, 2)) -> None:
        self.twin = twin
        self.sizes = sizes
        self.features = set(twin.spec.machine.features)
        self.rows: list[Row] = []
        self.answered: tuple[int, list[Row]] | None = None

    def moves(self) -> Iterator[Move]:
        """Every move that makes sense to try; the kernel may refuse it."""
        if self.answered is not None:
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
            if "grammar" in self.features:
                yield f"add structured {r}", partial(self.add, r, 1, Status.WAITING_FOR_GRAMMAR)
        for seq in list(kernel.seqs.values()):
            for hold in (False, True) if "send" in self.features else (False,):
                yield (
                    f"abort {seq.id} {hold}",
                    partial(self.finish, seq, Status.FINISHED_ABORTED, hold, "abort_request"),
                )
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
        twin, kernel = self.twin, self.twin.kernel
        taken = {row.seq for row in self.rows}
        for seq in list(kernel.seqs.values()):
            lacking = len(seq.tokens) - seq.computed
            if seq.status in (Status.WAITING, Status.PREEMPTED):
                for n in range(1, lacking + 1):
                    yield f"admit {seq.id} {n}", partial(self.admit, seq, n)
                if "load" in self.features:
                    yield f"load {seq.id}", partial(self.load, seq)
            if seq.status is Status.WAITING_FOR_REMOTE_KVS:
                yield f"promote {seq.id}", partial(self.promote, seq)
            if seq.status is Status.WAITING_FOR_GRAMMAR:
                yield (
                    f"grammar {seq.id}",
                    partial(twin.do, "grammar_ready", partial(kernel.grammar_ready, seq), r=seq.id),
                )
                yield (
                    f"grammar fails {seq.id}",
                    partial(self.finish, seq, Status.FINISHED_ERROR, False, "grammar_fails"),
                )
            if seq.status is Status.RUNNING and seq not in taken:
                for n in range(1, lacking + 1):
                    yield f"continue {seq.id} {n}", partial(self.go_on, seq, n)
            if seq.status is Status.RUNNING and "preemption" in self.features:
                yield f"preempt {seq.id}", partial(self.preempt, seq)
            if "handoff" in self.features:
                yield f"ship {seq.id}", partial(twin.do, "ship_handoff", partial(self._ship, seq), r=seq.id)
        yield "dispatch", self.dispatch

    def _update(self) -> Iterator[Move]:
        assert self.answered is not None
        _, rows = self.answered
        if "load" in self.features:
            for r in self.twin.requests:
                yield f"received {r}", partial(self.signal, "receive_finished", r)
                yield f"sent {r}", partial(self.signal, "send_finished", r)
                if "load_failure" in self.features:
                    yield f"failed {r}", partial(self.fail_load, r)
        if "handoff" in self.features:
            for seq in list(self.twin.kernel.seqs.values()):
                for n in range(1, seq.computed + 1):
                    yield f"trigger {seq.id} {n}", partial(self.trigger, seq, n)
            for r in self.twin.requests:
                yield f"acknowledged {r}", partial(self.signal, "handoff_acknowledged", r)
        if not rows:
            yield "end of update", self.end
            return
        row = rows[0]
        yield f"row of {row.seq.id}", partial(self.credit, row)
        yield f"stop {row.seq.id}", partial(self.stop, row, False)
        if "send" in self.features:
            yield f"stop and hold {row.seq.id}", partial(self.stop, row, True)

    # the moves

    def add(self, r: str, prompt: int, status: Status = Status.WAITING) -> object:
        return self.twin.do("add", partial(self.twin.kernel.add, new(r, prompt, status)), r=r)

    def finish(self, seq: Seq, reason: Status, hold: bool, action: str, **fixed: object) -> object:
        self.twin.hold = hold
        return self.twin.do("finish", partial(self.twin.kernel.finish, seq, reason), r=seq.id, **fixed)

    def begin(self, k: int) -> None:
        self.twin.building = k
        self.rows = []
        self.twin.move("begin_pass", k=k)

    def admit(self, seq: Seq, n: int) -> object:
        kernel = self.twin.kernel
        hit = None if seq.held_kv else kernel.store.lookup(seq)
        found = hit.tokens if hit else 0
        if n + found > len(seq.tokens):
            return None
        answer = self.twin.do("admit", partial(kernel.admit, seq, n, hit), r=seq.id, hits=found_in(hit))
        return self._row(seq, n, answer)

    def go_on(self, seq: Seq, n: int) -> object:
        answer = self.twin.do("resume_running", partial(self.twin.kernel.resume_running, seq, n), r=seq.id)
        return self._row(seq, n, answer)

    def _row(self, seq: Seq, n: int, answer: object) -> object:
        if isinstance(answer, tuple):
            self.rows.append(Row(seq, seq.run, n, 0, 0))
        return answer

    def preempt(self, seq: Seq) -> object:
        answer = self.twin.do("preempt", partial(self.twin.kernel.preempt, seq), r=seq.id)
        if not isinstance(answer, Refused):
            self.rows = [row for row in self.rows if row.seq is not seq]
        return answer

    def load(self, seq: Seq) -> object:
        kernel = self.twin.kernel
        hit = kernel.store.lookup(seq)
        external = len(seq.tokens) - hit.tokens
        return self.twin.do(
            "start_receive", partial(kernel.start_receive, seq, hit, external), r=seq.id, hits=found_in(hit)
        )

    def promote(self, seq: Seq) -> object:
        whole = seq.receive is not None and seq.receive.state is State.DONE and seq.receive.valid is None
        computed = len(seq.tokens) - 1 if whole and len(seq.tokens) > 1 else 0
        return self.twin.do("promote", partial(self.twin.kernel.promote, seq, computed), r=seq.id)

    def dispatch(self) -> None:
        twin = self.twin
        assert twin.building is not None
        k, twin.building = twin.building, None
        rows, self.rows = self.rows, []

        def leave() -> int:
            twin.flights[k] = twin.kernel.dispatch(rows, [])
            return 1

        twin.do("dispatch", leave, k=k)

    def output(self) -> None:
        twin = self.twin
        k = min(twin.flights, key=lambda slot: twin.flights[slot].number)
        step = twin.flights[k]
        twin.do("receive_output", partial(twin.kernel.receive_output, step), k=k)
        self.answered = k, list(step.rows)

    def credit(self, row: Row) -> None:
        self._close(row)
        seq = row.seq
        if seq.status is Status.RUNNING and seq.computed == len(seq.tokens) < LONGEST:
            learn(seq, 7)

    def stop(self, row: Row, hold: bool) -> object:
        self.twin.hold = hold
        seq = row.seq
        worth = seq.status in (Status.RUNNING, Status.PREEMPTED) and row.run >= seq.deliver_from
        if not worth:
            return None
        assert self.answered is not None
        self._drop_row(row)
        return self.twin.do(
            "finish",
            lambda: (self.twin.kernel.close_row(row), self.twin.kernel.finish(seq, Status.FINISHED_STOPPED)),
            r=seq.id,
        )

    def _close(self, row: Row) -> None:
        self._drop_row(row)
        self.twin.do("close_row", partial(self.twin.kernel.close_row, row), r=row.seq.id, k=self.answered[0])  # type: ignore[index]

    def _drop_row(self, row: Row) -> None:
        assert self.answered is not None
        k, rows = self.answered
        rows.remove(row)
        step = self.twin.flights[k]
        step.rows = [other for other in step.rows if other is not row]

    def end(self) -> None:
        assert self.answered is not None
        k, _ = self.answered
        self.answered = None
        del self.twin.flights[k]
        self.twin.move("finish_update", k=k)

    def trigger(self, seq: Seq, n: int) -> object:
        call = partial(self._handing().trigger_handoff, seq, n)
        return self.twin.do("trigger_handoff", call, r=seq.id, snapshot=frozenset(seq.table[:n]))

    def _ship(self, seq: Seq) -> int:
        self._handing().ship_handoff(seq)
        return 1

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
