"""A pair of kernel and specification as a small tuple of numbers: to know it again, and to go back to it.

Neither kernel nor specification looks at the name of a block or of a request, so two pairs that differ by names alone have the
same future: `canonical` names the blocks in the order in which the free list, the tables and the holds show them, and the
requests in the order that gives the least image. Steps and runs are compared only, so their place in order stands for them.

Everything that the kernel's operations look at is in an image, and a test holds it to the fields of the kernel's classes. Left
out is what they only write: counts of what happened, clocks, why a request ended, whom the common prefix is counted for, ids
that workers are to hear of where the specification knows nothing of that; and from which step's answer on a report may be
given, because reports come without a step here, at any time. How a pool keeps its free list is its own affair: the order counts.

Rejected: pickling whole objects (three times as slow, and equal states have unequal pickles).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, permutations, product
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tests.refinement.requests import KEYS, new
from tests.refinement.view import STATE, STATUS

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.sorts import Sort, UninterpretedSort
from vllm_lifecycle.spec.lifecycles.vocabulary import Kind, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.hold import Hold
from vllm_lifecycle.statemachine.kernel.queue import ArrivalQueue
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step
from vllm_lifecycle.statemachine.kernel.transfers import Transfer

if TYPE_CHECKING:
    from tests.refinement.lockstep import Lockstep

Image = tuple[Any, ...]

STATUSES, STATES, KINDS = tuple(Status), tuple(State), tuple(Kind)
NAMED = {code: key for key, code in KEYS.items()}


def image(twin: Lockstep, order: Sequence[int] | None = None) -> Image:
    """The pair as it is, or with the requests in this order and the blocks in that of their appearance."""
    kernel, pool, prefixes = twin.kernel, twin.store.pool, twin.store.prefixes
    requests = twin.requests
    places = range(len(requests)) if order is None else order
    at = {requests[r]: i for i, r in enumerate(places)}
    flights = sorted(twin.flights.items(), key=lambda item: item[1].number)

    # who there is
    seqs: list[Seq] = [seq for r in places if (seq := kernel.seqs.get(requests[r])) is not None]
    live = len(seqs)
    index = {seq: i for i, seq in enumerate(seqs)}
    runs: dict[Seq, set[int]] = {}
    for row in (*twin.rows, *(row for _, step in flights for row in step.rows)):
        if row.seq not in index:
            index[row.seq] = len(seqs)
            seqs.append(row.seq)
        runs.setdefault(row.seq, set()).add(row.run)

    holds: dict[Hold, int] = {}
    for seq in seqs:
        for transfer in (seq.receive, seq.send, seq.handoff):
            if transfer is not None and transfer.hold is not None:
                holds.setdefault(transfer.hold, len(holds))
    for _, hold in kernel.steps.waiting:
        holds.setdefault(hold, len(holds))
    held = sum(hold.counted for hold in holds)
    if held != twin.store._held or len(holds) - held != len(twin.store._uncounted):
        raise AssertionError("the store counts a hold that nobody has")

    # names of blocks
    free = pool.queue
    shown = list(free)
    for seq in seqs:
        shown += seq.table
    for hold in holds:
        shown += hold.blocks[0]
    blocks = sorted(set(shown)) if order is None else list(dict.fromkeys(shown))
    if len(blocks) != len(twin.blocks):
        raise AssertionError("a block is neither free nor held")
    name = {block: i for i, block in enumerate(blocks, 1)}

    numbers = [step.number for _, step in flights]
    state = twin.state if order is None else _permutation(twin.spec, tuple(places), tuple(blocks))(twin.state)
    return (
        bytes(state),
        -1 if twin.building is None else twin.building,
        -1 if twin.answered is None else twin.answered[0],
        live,
        tuple([_record(seq, at, name, runs.get(seq, ()), numbers, holds) for seq in seqs]),
        tuple([(tuple([name[b] for b in h.blocks[0]]), int(h.counted), int(h.live)) for h in holds]),
        tuple([name[b] for b in free]),
        tuple([pool.refs[b] for b in blocks]),
        tuple([KEYS[key] if (key := prefixes.keys[b]) is not None else 0 for b in blocks]),
        tuple(sorted((KEYS[key], name[b]) for key, b in prefixes.first.items())),
        tuple(sorted((KEYS[key], *(name[b] for b in some)) for key, some in prefixes.copies.items())),
        tuple([index[seq] for seq in kernel.waiting]),
        tuple([index[seq] for seq in kernel.running]),
        tuple([index[seq] for seq in kernel.loads]),
        tuple([index[seq] for seq in kernel.idle]),
        tuple(sorted(at[id] for id in kernel.notices)) if twin.notices else (),
        kernel.unfinished,
        tuple(sorted((index[seq], n) for seq, n in kernel._filling.items())),
        tuple(sorted((index[seq], *(name[b] for b in grown[0])) for seq, grown in kernel._grown.items())),
        tuple([(_rank(last, numbers), holds[hold]) for last, hold in kernel.steps.waiting]),
        tuple([(k, int(step.number in kernel.steps.outstanding), _rows(step.rows, index, runs)) for k, step in flights]),
        _rows(twin.rows, index, runs),
    )  # fmt: skip


def canonical(twin: Lockstep) -> Image:
    """The same for all pairs that differ by names alone."""
    return min(image(twin, order) for order in _orders(twin))


def restore(twin: Lockstep, found: Image) -> None:
    """The pair becomes as the image shows it."""
    (
        state, building, answered, live, records, holds, queue, refs, keys, first, copies, waiting, running, loads, idle,
        notices, unfinished, filling, grown, stepped, flights, rows,
    ) = found  # fmt: skip
    kernel, store = twin.kernel, twin.store
    twin.state, twin.building, twin.known = tuple(state), None if building < 0 else building, None
    custody = [Hold((list(blocks),), bool(counted)) for blocks, counted, _ in holds]
    for hold, (_, _, alive) in zip(custody, holds, strict=True):
        hold.live = bool(alive)
    seqs = [_seq(record, twin.requests, custody) for record in records]
    kernel.seqs = {seq.id: seq for seq in seqs[:live]}
    pool, prefixes = store.pool, store.prefixes
    pool.queue = list(queue)
    pool.refs = [0, *refs]
    prefixes.keys = [None, *(NAMED.get(code) for code in keys)]
    prefixes.first = {NAMED[code]: block for code, block in first}
    prefixes.copies = {NAMED[code]: dict.fromkeys(some) for code, *some in copies}
    store._listed = {seq.epoch for seq in seqs if seq.table}
    store._held = sum(hold.counted for hold in custody)
    store._uncounted = {hold for hold in custody if not hold.counted}
    assert isinstance(kernel.waiting, ArrivalQueue)
    kernel.waiting._seqs = OrderedDict.fromkeys([seqs[i] for i in waiting])
    kernel.running = [seqs[i] for i in running]
    kernel.loads = dict.fromkeys([seqs[i] for i in loads])
    kernel.idle = dict.fromkeys([seqs[i] for i in idle])
    kernel.notices = {twin.requests[i] for i in notices}
    kernel.unfinished = unfinished
    kernel._filling = {seqs[i]: n for i, n in filling}
    kernel._grown = {seqs[i]: (some,) for i, *some in grown}
    steps = kernel.steps
    steps.number = len(flights)
    steps.waiting = [(last, custody[i]) for last, i in stepped]
    steps.outstanding, twin.flights = {}, {}
    for number, (k, outstanding, its) in enumerate(flights, 1):
        step = twin.flights[k] = Step(number, _rows_back(its, seqs), [])
        if outstanding:
            steps.outstanding[number] = step
    twin.rows = _rows_back(rows, seqs)
    twin.answered = None if answered < 0 else (answered, list(twin.flights[answered].rows))


def _record(
    seq: Seq, at: dict[str, int], name: dict[int, int], runs: Any, numbers: list[int], holds: dict[Hold, int]
) -> Image:  # fmt: skip
    levels = sorted({seq.run, seq.deliver_from, *runs})
    return (
        at[seq.id], STATUS[seq.status], seq.prompt, len(seq.tokens), seq.computed, tuple([name[b] for b in seq.table]),
        seq.cached_blocks, seq.in_flight, _rank(seq.last_step, numbers), levels.index(seq.run), levels.index(seq.deliver_from),
        int(seq.announced), int(seq.held_kv), int(seq.triggered), int(seq.anew),
        _transfer(seq.receive, holds), _transfer(seq.send, holds), _transfer(seq.handoff, holds),
    )  # fmt: skip


def _seq(record: Image, requests: tuple[str, ...], holds: list[Hold]) -> Seq:
    (
        id, status, prompt, tokens, computed, table, cached, in_flight, last, run, deliver, announced, held, triggered, anew,
        receive, send, handoff,
    ) = record  # fmt: skip
    seq = new(requests[id], prompt, STATUSES[status], tokens)
    seq.computed = computed
    seq.table = list(table)
    seq.cached_blocks = cached
    seq.in_flight = in_flight
    seq.last_step = last
    seq.run = run
    seq.deliver_from = deliver
    seq.announced, seq.held_kv, seq.triggered, seq.anew = (
        bool(announced),
        bool(held),
        bool(triggered),
        bool(anew),
    )
    seq.receive = _transfer_back(receive, Kind.RECEIVE, holds)
    seq.send = _transfer_back(send, Kind.SEND, holds)
    seq.handoff = _transfer_back(handoff, Kind.HANDOFF, holds)
    return seq


def _transfer(transfer: Transfer | None, holds: dict[Hold, int]) -> Image:
    if transfer is None:
        return ()
    hold, valid = transfer.hold, transfer.valid
    return (
        STATE[transfer.state], -1 if hold is None else holds[hold], -1 if valid is None else valid, transfer.tokens,
    )  # fmt: skip


def _transfer_back(found: Image, kind: Kind, holds: list[Hold]) -> Transfer | None:
    if not found:
        return None
    state, hold, valid, tokens = found
    transfer = Transfer(kind, STATES[state], None if hold < 0 else holds[hold], 0.0, tokens)
    transfer.valid = None if valid < 0 else valid
    return transfer


def _rows(rows: Sequence[Row], index: dict[Seq, int], runs: dict[Seq, set[int]]) -> Image:
    return tuple(
        [
            (index[seq], sorted({seq.run, seq.deliver_from, *runs[seq]}).index(run), tokens, drafts, awaited)
            for seq, run, tokens, drafts, awaited in rows
        ]
    )


def _rows_back(rows: Image, seqs: list[Seq]) -> list[Row]:
    return [Row(seqs[i], *rest) for i, *rest in rows]


def _rank(last: int, numbers: list[int]) -> int:
    """How many of the steps in flight are not newer than step `last`."""
    return sum([number <= last for number in numbers])


# names


def _orders(twin: Lockstep) -> Iterator[tuple[int, ...]]:
    """The orders of the requests that may give the least image: by what the specification says of each, where that differs."""
    ranked = sorted((profile(twin.state), r) for r, profile in enumerate(_profiles(twin.spec)))
    groups = [[r for _, r in group] for _, group in groupby(ranked, key=itemgetter(0))]
    for parts in product(*(permutations(group) for group in groups)):
        yield tuple(r for part in parts for r in part)


@cache
def _profiles(spec: Program) -> tuple[Any, ...]:
    """For each request, a function from a state to what it says of that request alone."""
    cells = tuple(enumerate(spec.layout.cells))
    single = {var.name for var in spec.machine.vars if tuple(map(_called, var.args)) == ("Request",)}
    requests = spec.domain.individuals["Request"]
    return tuple(
        itemgetter(*(i for i, (var, args) in cells if var in single and args[0] == r)) for r in requests
    )


@cache
def _permutation(spec: Program, order: tuple[int, ...], blocks: tuple[int, ...]) -> Any:
    """From a state to the same with other names: the new i-th request is the old `order[i]`-th, the i-th block `blocks[i]`."""
    requests, layout = spec.domain.individuals["Request"], spec.layout
    old: dict[str, dict[Any, Any]] = {
        "Request": {requests[i]: requests[r] for i, r in enumerate(order)},
        "Block": dict(enumerate(blocks, 1)),
    }
    if any(_called(var.sort) in old for var in spec.machine.vars):
        raise AssertionError(
            "a variable whose value is a request or a block: moving cells would not rename it"
        )
    places = {cell: i for i, cell in enumerate(layout.cells)}
    sorts = {var.name: [old.get(_called(sort), {}) for sort in var.args] for var in spec.machine.vars}
    return itemgetter(
        *(
            places[var, tuple(names.get(arg, arg) for names, arg in zip(sorts[var], args, strict=True))]
            for var, args in layout.cells
        )
    )


def _called(sort: Sort) -> str:
    return sort.name if isinstance(sort, UninterpretedSort) else ""
