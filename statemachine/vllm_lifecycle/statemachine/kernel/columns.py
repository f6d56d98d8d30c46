"""Lockstep decoders: running requests that get one token in each step, served all at once.

Most rows of most steps are such: their place in the step, the number of their computed tokens and what their client is told
differ from one step to the next by one. So none of that is written per request and step. A member's `computed` is kept as a
base to which the number of dispatched steps is added; a wheel over that sum modulo the block size says who stands at a block
boundary and needs a block or a key; a calendar says who reaches its length; one set test over the tokens of a step finds those
that stop. The results are those of the general pass, which takes over for everybody when something is not as usual:

- members are a prefix of the running requests that take part, in order; who stands before them and may run sends them back; - a
member that ends, is preempted, or is answered by anything but one token leaves first, and its record is brought up to date; -
blocks for the members, and all that the rest of the running requests could need, are there, or there are no members in the
pass.

So no member ever needs to be preempted while it is one, and an operation of the kernel on a member finds an ordinary record.
While K steps are in flight each holds a row of each member, so what is awaited of a member follows from the two counts of steps.

Rejected: an object that computes on access for each field (the general pass reads them in its inner loop); keeping members while
drafts come (each row has another length).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.lanes import Facts, Lanes
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step, Steps


class Served(NamedTuple):
    """The members' part of a plan: who, their computed tokens and outputs before the step, and new blocks by place."""

    lanes: Lanes
    computed: list[int]
    shown: list[int]
    fresh: dict[int, list[int]]


Credited = tuple[Lanes, Sequence[list[int]], list[int]]
"""The members' part of an answer: who they were; what each of them was given, by place; places of those that left because of it,
to whom nothing has been credited, and who take the general way."""


class Columns:
    """The lockstep decoders of a kernel.

    ahead       steps are planned before the last one's tokens are known (asynchronous scheduling)
    model_len   longest sequence; depth: most steps in flight with which there are members
    prompt      a token is in its request's lists at once; else within a block's length of steps, and `flush` sees to it
    tick, tock  dispatched and answered steps, those without rows left out
    """

    def __init__(
        self,
        store: PagedStore,
        steps: Steps,
        facts: Facts,
        *,
        ahead: bool,
        model_len: int,
        prompt: bool = False,
        depth: int = 2,
    ) -> None:
        self.tick = 0
        self.tock = 0
        self._store, self._steps, self._facts = store, steps, facts
        self._ahead, self._model_len, self._depth = ahead, model_len, depth
        self._size = store.block_size
        self._most = depth if ahead else 0
        self._prompt = prompt or store.listener is not None
        self._lanes = Lanes()
        self._gone: list[Seq] = []
        self._last = 0
        self._answered: tuple[Step, ...] = ()
        self._wheel: list[dict[Seq, None]] = [{} for _ in range(store.block_size)]
        self._calendar: dict[int, dict[Seq, None]] = {}
        self._near: dict[Seq, None] = {}
        self._behind: list[list[int]] = []

    # membership

    @property
    def lanes(self) -> Lanes:
        """The members."""
        if self._gone:
            self._change(())
        return self._lanes

    def _change(self, joining: Sequence[Seq]) -> None:
        """Those who left are members no more, and these are, in one go."""
        places = self._lanes.change(self._gone, joining, self.tick, self._facts)
        for row in self._behind:
            for place in places:
                del row[place : place + 1]
        self._gone = []

    @property
    def _end(self) -> tuple[int, Seq | None]:
        """How many members there are, and the last of them."""
        seqs = self._lanes.seqs
        last = next((seq for seq in reversed(seqs) if seq.lockstep is self), None)
        return len(seqs) - len(self._gone), last

    @property
    def flight(self) -> int:
        """Steps in flight, those without rows left out."""
        return self.tick - self.tock

    @property
    def awaited(self) -> int:
        """Output tokens of each member that are awaited from steps in flight (asynchronous scheduling)."""
        return self.flight if self._ahead else 0

    def leave(self, seq: Seq) -> None:
        """The request is served by itself from now on; its record says what the columns knew."""
        place, flight = self._lanes.place[seq.id], self.flight
        self._write(seq, place)
        self._lanes.tokens[place] = self._lanes.outputs[place] = []  # what comes later is not his
        del self._wheel[seq.computed % self._size][seq]
        when = self._last_answer(seq)
        for time in (when, when - 1 - self._depth):
            self._calendar.get(time, {}).pop(seq, None)
        self._near.pop(seq, None)
        seq.computed += self.tick
        seq.in_flight = flight
        seq.placeholders = self.awaited
        if flight:
            seq.last_step = self._last
            for step in chain(self._steps.outstanding.values(), self._answered):
                step.left[seq] = seq.run
        seq.lockstep = None
        self._gone.append(seq)

    def flush(self) -> None:
        """Tokens that were credited and not written down yet are."""
        if self._behind:
            for place, seq in enumerate(self._lanes.seqs):
                if seq.lockstep is self:
                    self._write(seq, place)
            self._behind.clear()

    def _write(self, seq: Seq, place: int) -> None:
        """The tokens of the member at this place that are not in its lists yet are."""
        missing = seq.computed + 1 + self.tock - len(seq.tokens)
        if missing:
            unwritten = list(map(itemgetter(place), self._behind[-missing:]))
            seq.tokens += unwritten
            seq.outputs += unwritten

    def dissolve(self) -> None:
        """Everybody leaves."""
        self.flush()
        for seq in self.lanes.seqs:
            self.leave(seq)

    def _join(self, seqs: Sequence[Seq]) -> None:
        tick, size = self.tick, self._size
        for seq in seqs:
            seq.computed -= tick
            seq.lockstep = self
            self._wheel[seq.computed % size][seq] = None
            when = self._last_answer(seq)
            self._calendar.setdefault(when, {})[seq] = None
            if self._ahead:
                self._watch(seq, when - 1 - self._depth)
        self._change(seqs)

    def _last_answer(self, seq: Seq) -> int:
        """The number of answers after which the member has its greatest length, if nothing else ends it."""
        return min(seq.prompt + seq.limit, self._model_len) - 1 - seq.computed

    def _watch(self, seq: Seq, when: int) -> None:
        """From answer number `when` on the member may be so near its end that a step in flight could be its last."""
        if when <= self.tock:
            self._near[seq] = None
        else:
            self._calendar.setdefault(when, {})[seq] = None

    # a pass

    def serve(self, running: list[Seq], room: int, lacks: Callable[[Seq], int]) -> Served | None:
        """The members' part of a pass with `room` tokens; `lacks` says how many tokens a running request would be given.

        None: there are no members, and everybody is served by the general pass.
        """
        tick, size, lanes = self.tick, self._size, self._lanes
        if tick - self.tock > self._most:
            self.dissolve()
            return None
        if self._near or self._gone or len(running) != len(lanes.seqs):
            self._retire()
            self._keep_order(running, lacks)
            self._take_in(running, lacks)
            lanes = self.lanes
        n = len(lanes.seqs)
        if not n:
            return None
        needy: Sequence[Seq] = ()
        if due := self._wheel[-tick % size]:
            needy = [seq for seq in due if len(seq.table) * size <= seq.computed + tick]
        alone = n == len(running)
        if n > room or not ((alone and not needy) or self._enough(len(needy), alone, running, room, lacks)):
            self.dissolve()
            return None
        full = self._wheel[(-1 - self.tock) % size]
        fresh = self._boundaries(needy, self._keyless() if full else {}) if needy or full else {}
        return Served(
            lanes, [base + tick for base in lanes.base], [base + tick for base in lanes.shown], fresh
        )

    def _retire(self) -> None:
        """Who needs no further step, whatever the tokens in flight are, sits out from now on."""
        for seq in list(self._near) if self.flight else ():
            known = seq.computed + 1 + self.tock
            if known + 1 >= seq.prompt + seq.limit or seq.computed + self.tick >= self._model_len - 1:
                self.leave(seq)

    def _keep_order(self, running: list[Seq], lacks: Callable[[Seq], int]) -> None:
        """Members behind somebody who takes part and is none leave."""
        members, last = self._end
        if last is None or running[members - 1] is last:
            return
        passed, seqs = 0, self.lanes.seqs
        for seq in running:
            if seq.lockstep is not None:
                passed += 1
                if passed == members:
                    return
            elif lacks(seq) > 0:
                for member in seqs[passed:]:
                    self.leave(member)
                return

    def _take_in(self, running: list[Seq], lacks: Callable[[Seq], int]) -> None:
        """Running requests right behind the members join, as long as they are fit."""
        members, last = self._end
        first = running.index(last, members - 1) + 1 if last is not None else 0
        if first == len(running) or (not members and self._store.free < 2 * len(running) // self._size):
            return
        rows = self._steps.decoding()
        joining = []
        for seq in running[first:]:
            lacking = lacks(seq)
            if lacking == 1 and self._fit(seq, rows):
                joining.append(seq)
            elif lacking > 0:
                break
        if joining:
            self._join(joining)

    def _fit(self, seq: Seq, rows: list[set[Seq]]) -> bool:
        flight, known, size = self.flight, len(seq.tokens), self._size
        return (
            seq.status is Status.RUNNING
            and len(seq.outputs) > 0
            and not seq.drafts
            and seq.in_flight == flight == len(rows)
            and all(seq in step for step in rows)
            and seq.placeholders == (flight if self._ahead else 0)
            and seq.computed == known - 1 + seq.placeholders
            and seq.computed <= len(seq.table) * size
            and known < min(seq.prompt + seq.limit, self._model_len)
            and (not self._store.caching or seq.cached_blocks >= (known - 1) // size)
            and self._facts.fits(seq)
        )

    def _enough(
        self, needed: int, alone: bool, running: list[Seq], room: int, lacks: Callable[[Seq], int]
    ) -> bool:
        """Nobody who runs can fail to find blocks in this pass; `alone`: nobody but the members runs."""
        store = self._store
        free = store.free - needed
        if alone or free < 0:
            return free >= 0
        rest = [seq for seq in running if seq.lockstep is None]
        return sum(store.needs(seq, seq.computed + min(max(lacks(seq), 0), room)) for seq in rest) <= free

    def _boundaries(self, needy: Sequence[Seq], keyless: dict[Seq, int]) -> dict[int, list[int]]:
        """Blocks are taken and keys given; the new blocks by place. Who listens hears it member by member."""
        store, place = self._store, self._lanes.place
        if store.listener is None:
            blocks = store.extend(needy) if needy else ()
            if keyless:
                store.store(keyless)
            return {place[seq.id]: [block] for seq, block in zip(needy, blocks, strict=True)}
        fresh, takers = dict[int, list[int]](), set(needy)
        for seq in sorted(takers.union(keyless), key=lambda seq: place[seq.id]):
            if seq in takers:
                fresh[place[seq.id]] = store.extend([seq])
            if seq in keyless:
                store.store({seq: keyless[seq]})
        return fresh

    def _keyless(self) -> dict[Seq, int]:
        """Members with a full block that is not in the prefix cache yet, and how many full ones they have."""
        known, size = 1 + self.tock, self._size
        full = self._wheel[-known % size]
        if not full or not self._store.caching:
            return {}
        return {seq: n for seq in full if (n := (seq.computed + known) // size) > seq.cached_blocks}

    def dispatched(self, step: Step) -> None:
        """A step has left for the workers; one without rows is not counted."""
        if step.lockstep or step.rows:
            self.tick += 1
            self._last = step.number

    # an answer

    def answered(self, step: Step) -> None:
        """A step is not outstanding any more; who leaves before its tokens are credited has a row in it."""
        self._answered = (step,)

    def credit(self, step: Step, places: Mapping[str, int], sampled: Sequence[list[int]]) -> Credited:
        """The tokens of an answered step go to the members; to be called for each step, before its rows are closed.

        `places`: where each id's tokens are in `sampled`.
        """
        if not (step.rows or step.lockstep):
            return Lanes(), [], []
        lanes = self.lanes if self._gone else self._lanes
        self._answered = ()
        tokens = lanes.gather(places, sampled)
        flat = list(chain.from_iterable(tokens))
        single = len(flat) == len(tokens) and all(tokens)
        ending = self._calendar.get(self.tock + 1)
        usual = single and not ending and lanes.any_stop.isdisjoint(flat)
        apart = [] if usual else self._odd(lanes, tokens, ending or ())
        if apart:
            for place in apart:
                self.leave(lanes.seqs[place])
            if not single:
                flat = [row[0] if row else 0 for row in tokens]  # what stands for those who left is not read
        if self._ahead:
            self._store.store(self._keyless())
        self.tock += 1
        if self._prompt:
            any(map(list.append, lanes.tokens, flat))
            any(map(list.append, lanes.outputs, flat))
        else:
            self._behind.append(flat)
        if full := self._wheel[(-1 - self.tock) % self._size]:
            for seq in full:
                self._write(seq, lanes.place[seq.id])
            self._facts.hash(full, self._size)
        if len(self._behind) >= self._size:
            del self._behind[0]
        if ending is not None:
            self._near.update(self._calendar.pop(self.tock))
        return lanes, tokens, apart

    def _odd(self, lanes: Lanes, tokens: Sequence[list[int]], ending: Iterable[Seq]) -> list[int]:
        """The places of those to whom something else happens than one more token; who is near its end is `ending`."""
        stops, place_of = lanes.stops, lanes.place
        odd = {
            place
            for place, row in enumerate(tokens)
            if len(row) != 1 or (row[0] in lanes.any_stop and row[0] in stops[place])
        }
        odd.update(place_of[seq.id] for seq in ending if self._last_answer(seq) == self.tock + 1)
        return sorted(odd)

    def departed(self, step: Step) -> dict[Seq, Row]:
        """Rows of a step for those who were members when it was planned, and are not any more."""
        return {
            seq: Row(seq, step.left.get(seq, seq.run), 1, 0, 1)
            for seq in step.lockstep
            if seq.lockstep is not self
        }
