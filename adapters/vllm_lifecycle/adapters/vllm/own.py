"""The verified scheduler under the explorer: what it remembers that no attribute of vLLM's shows.

Its state is the kernel's, and requests, queues and counters are views of it; the canonical form would take states for one that
differ in what only the kernel knows. Numbers of runs and steps only grow: they enter as differences and as places among the steps
in flight. Epochs, clocks and counts of breaches decide nothing and are left out.
"""

from __future__ import annotations

from typing import Any

from .extension import Blocks, Extension


class Own(Extension):
    """Adds the kernel's state to the canonical form."""

    def state(self) -> tuple[Any, ...]:
        return kernel_state(self.driver.scheduler)


def kernel_state(scheduler: Any) -> tuple[Any, ...]:
    """What decides how a verified scheduler goes on, ids as they are."""
    kernel = scheduler._kernel
    return (
        tuple(_request(seq, kernel) for seq in kernel.seqs.values()),
        _ids(kernel.running),
        _ids(kernel.waiting),
        _ids(kernel.holding),
        _ids(kernel.loads),
        tuple(sorted(kernel.notices)),
        tuple(_step(step, kernel) for step in kernel.steps.outstanding.values()),
        tuple((_place(kernel, last), _hold(hold)) for last, hold in kernel.steps.waiting),
        _ids(kernel.columns.lanes.seqs) if kernel.columns is not None else (),
        _ids(scheduler._world.doomed),
        _ids(scheduler._answers.ended),
        _encoder(scheduler._world.encoders, kernel),
    )


def _ids(seqs: Any) -> tuple[str, ...]:
    return tuple(seq.id for seq in seqs)


def _place(kernel: Any, number: int) -> int:
    """How many of the steps in flight left up to that one."""
    return sum(step <= number for step in kernel.steps.outstanding)


def _hold(hold: Any) -> tuple[Any, ...]:
    return () if hold is None else tuple(Blocks(tuple(group)) for group in hold.blocks)


def _transfer(transfer: Any, kernel: Any) -> tuple[Any, ...]:
    if transfer is None:
        return ()
    told = _place(kernel, transfer.first - 1)
    return transfer.state.name, transfer.valid, transfer.tokens, told, _hold(transfer.hold)


def _request(seq: Any, kernel: Any) -> tuple[Any, ...]:
    shared = seq.receive is not None and seq.send is not None and seq.receive.hold is seq.send.hold
    return (
        seq.id,
        seq.status.name,
        "" if seq.reason is None else seq.reason.name,
        seq.computed_now,
        seq.awaited_now,
        len(seq.tokens),
        len(seq.drafts),
        tuple(Blocks(tuple(group)) for group in kernel.store.table(seq)),
        seq.cached_blocks,
        seq.cached_tokens,
        seq.external,
        seq.run - seq.deliver_from,
        seq.in_flight if seq.lockstep is None else seq.lockstep.flight,
        _place(kernel, seq.last_step),
        (seq.chunk, seq.announced, seq.held_kv, seq.triggered, shared),
        tuple(_transfer(transfer, kernel) for transfer in (seq.receive, seq.send, seq.handoff)),
    )


def _step(step: Any, kernel: Any) -> tuple[Any, ...]:
    def owner(seq: Any) -> tuple[str, bool]:
        return seq.id, kernel.seqs.get(seq.id) is seq

    return (
        tuple(
            (*owner(row.seq), row.seq.run - row.run, row.tokens, row.drafts, row.awaited) for row in step.rows
        ),
        tuple(owner(seq) for seq in step.lockstep),
        tuple((*owner(seq), seq.run - run) for seq, run in step.left.items()),
    )


def _encoder(encoders: Any, kernel: Any) -> tuple[Any, ...]:
    """The encoder cache and what waits to leave it; entries by their first occurrence."""
    manager = encoders.manager
    cached = getattr(manager, "cached", {})
    names = {entry: place for place, entry in enumerate(cached)}
    return (
        tuple(tuple(sorted(users)) for users in cached.values()),
        tuple(names.get(entry, -1) for entry in getattr(manager, "freeable", ())),
        len(getattr(manager, "freed", ())),
        getattr(manager, "num_free_slots", 0),
        tuple((seq.id, ahead) for seq, ahead in encoders._ahead.items()),
        tuple((_place(kernel, number), seq.id) for number, seq, _ in encoders._later),
    )
