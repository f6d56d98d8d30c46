"""A pass of continuous batching: running requests first, in their order; then waiting ones, while budget and slots last.

One loop serves prefill and decode: a request is given as many tokens as it lacks. What may be done is the kernel's business,
in which order the policy's; this module knows budgets. A running request that finds no blocks makes a victim of the policy's
choice give way, at most until it is its own turn; after a preemption nobody is admitted in the same pass. A request that
holds or will hold more than the whole pool ends in error instead of preempting itself for ever.
"""

from __future__ import annotations

from itertools import chain, islice

from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.queue import Queue
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import Hit
from vllm_lifecycle.statemachine.policies.policy import Policy
from vllm_lifecycle.statemachine.scheduling.kept import make_room, passed_by, still
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import Limits, Rules
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan, World

RUNS, HOLDS_NEW, STOPS = range(3)
"""How much is paused: nothing; the admission of requests without blocks; everything."""


class Scheduling:
    """Builds plans; `kernel.dispatch` makes a step of one."""

    def __init__(self, kernel: Kernel, policy: Policy, rules: Rules, limits: Limits, world: World) -> None:
        self.kernel = kernel
        self.policy = policy
        self.rules = rules
        self.limits = limits
        self.world = world
        self.paused = RUNS
        self._budget = self._inputs = 0
        self._encoder = 0
        self._threshold = 0
        self._reading = False
        self._prefills: set[Seq] = set()

    def plan(self) -> Plan:
        """One pass. The plan is not dispatched yet: `computed` of its requests is what it was before the step."""
        plan = Plan()
        if self.paused == STOPS:
            return plan
        limits, kernel = self.limits, self.kernel
        self._budget = limits.tokens
        self._inputs = limits.inputs or limits.tokens
        self._encoder, self._reading = limits.encoder, False
        self._threshold = limits.threshold and self._bound()
        index = 0 if kernel.columns is None else self._serve_lockstep(plan, kernel.columns)
        if index < len(kernel.running):
            self._serve_running(plan, index)
        if not plan.preempted and kernel.unfinished > len(kernel.running):
            self._serve_waiting(plan)
        return plan

    def _bound(self) -> int:
        """The longest chunk of a prompt in this pass, 0 for no bound."""
        limits, eligible = self.limits, self.kernel.unfinished
        if self.rules.threshold_alone:
            return limits.threshold
        if eligible <= 1:
            return 0
        return max(limits.threshold, self._inputs // eligible) if limits.adaptive else limits.threshold

    def _room(self) -> int:
        """Tokens that one more row could have."""
        return min(self._budget, self._inputs - self.limits.extra)

    def settle(self, plan: Plan) -> None:
        """After the dispatch: who still has known tokens to compute, and outputs that are awaited (asynchronous scheduling)."""
        seqs, ahead = self.kernel.seqs, self.rules.asynchronous
        draft = [-1] * self.limits.drafts
        for id in islice(plan.tokens, len(plan.members), None):
            seq = seqs[id]
            seq.chunk = seq.computed < len(seq.tokens) + seq.placeholders
            if seq.chunk:
                continue
            self._prefills.discard(seq)
            if ahead:
                ridden = len(plan.drafts.get(id, ()))
                seq.placeholders += self.limits.sampled + ridden
                seq.drafts = draft.copy()

    # running requests

    def _serve_lockstep(self, plan: Plan, columns: Columns) -> int:
        """The lockstep decoders take part; gives how many of the running requests that settles."""
        running = self.kernel.running
        served = columns.serve(running, self._room(), self._lacking)
        if served is None:
            return 0
        plan.serve(served)
        n = len(plan.members)
        self._budget -= n
        self._inputs -= n * (1 + self.limits.extra)
        return n if running[n - 1] is plan.members[-1] else 0

    def _serve_running(self, plan: Plan, index: int) -> None:
        running = self.kernel.running
        while index < len(running) and self._room() > 0:
            seq = running[index]
            index += 1
            if seq.lockstep is not None:
                continue
            new = self._lacking(seq)
            if new <= 0:
                continue
            inputs: EncoderPlan | None = None
            if self.limits.encoder and self.world.has_encoder(seq):
                inputs = self.world.encoder_plan(seq, seq.computed, new, self._encoder)
                new = inputs.new
                if new <= 0:
                    continue
            fresh = self.kernel.resume_running(seq, new, lookahead=self.limits.lookahead)
            while fresh is None:
                victim = self.policy.victim(running, seq)
                if self.world.frees_pending() or self.kernel.steps.touches(victim.last_step):
                    return
                if running.index(victim) < index:
                    index -= 1
                if self._give_way(plan, victim, seq):
                    break
                fresh = self.kernel.resume_running(seq, new, lookahead=self.limits.lookahead)
            if fresh is None:
                continue
            self._take(plan, seq, new, fresh, inputs)
            plan.running.append(seq)
            self._reading |= seq.chunk

    def _lacking(self, seq: Seq) -> int:
        """Tokens that a running request is given: all that it lacks, within the bounds; 0 or less: it sits this pass out."""
        awaited = seq.placeholders
        if awaited and seq.computed + 2 - awaited >= seq.prompt + seq.limit:
            return 0
        limits, world = self.limits, self.world
        if limits.encoder and world.has_encoder(seq) and not world.encoder_there(seq, seq.computed - awaited):
            return 0
        new = len(seq.tokens) + len(seq.drafts) + awaited - seq.computed
        threshold = self._threshold
        if 0 < threshold < new:
            new = threshold
        return min(new, self._room(), limits.model_len - limits.sampled - seq.computed)

    def _give_way(self, plan: Plan, victim: Seq, requester: Seq) -> bool:
        """The victim is preempted, its part in this pass undone; True when the requester itself gave way."""
        if victim.id in plan.tokens:
            tokens, inputs = plan.undo(victim)
            self._budget += tokens
            self._inputs += tokens + self.limits.extra
            self._encoder += self.world.encoder_size(victim, inputs) if inputs else 0
        alone = (
            victim is requester and self.kernel.store.free + self._own(victim) >= self.kernel.store.size - 1
        )
        if alone:
            self.kernel.finish(victim, Status.FINISHED_ERROR)
            plan.failed.append(victim)
            return True
        self.world.encoder_free(victim)
        self.kernel.preempt(victim, deliver=not self.limits.drops_output)
        self.world.preempted(victim)
        plan.preempted.append(victim)
        return victim is requester

    def _own(self, seq: Seq) -> int:
        return sum(len(group) for group in self.kernel.store.table(seq))

    def _take(
        self, plan: Plan, seq: Seq, new: int, fresh: tuple[list[int], ...], inputs: EncoderPlan | None
    ) -> None:
        """The request takes part in the step."""
        plan.fresh[seq.id] = fresh
        plan.tokens[seq.id] = new
        self._budget -= new
        self._inputs -= new + self.limits.extra
        if seq.drafts:
            ridden = new + seq.computed - len(seq.tokens) - seq.placeholders
            if ridden > 0:
                plan.drafts[seq.id] = list(seq.drafts[:ridden])
            seq.drafts = ()
        if inputs is not None:
            if inputs.inputs:
                plan.encoder[seq.id] = inputs.inputs
                self._encoder = inputs.budget
            self.world.encoder_take(seq, inputs)

    # waiting requests

    def _serve_waiting(self, plan: Plan) -> None:
        kernel = self.kernel
        runs = chain(plan.members, plan.running) if self.limits.loras else ()
        loras = {seq.lora for seq in runs if seq.lora}
        skipped: dict[Queue, list[Seq]] = {}
        short = False
        while self._room() > 0:
            queue = kernel.holding
            if not len(queue) and self.paused == RUNS and (not short or still(kernel, plan)):
                queue = kernel.waiting
            if not len(queue):
                break
            seq = queue.peek()
            crowded = not kernel.slot_is_free() and seq not in kernel.loads
            if crowded and not (queue is kernel.holding and kernel.loads):
                break
            if crowded or not self._ready(plan, seq):
                if seq.status is Status.FREED or seq.status is Status.WAITING_FOR_TRANSFER_FREE:
                    continue
            elif not (seq.lora and seq.lora not in loras and len(loras) >= self.limits.loras > 0):
                answer = self._admit(plan, seq)
                if answer is None and not passed_by(kernel, plan, seq):
                    break
                short |= answer is None
                if answer:
                    if seq.lora:
                        loras.add(seq.lora)
                    continue
            queue = kernel.queue_of(seq)
            queue.remove(seq)
            skipped.setdefault(queue, []).append(seq)
        for queue, seqs in skipped.items():
            queue.put_back(seqs)
            plan.skipped += seqs
        if short and still(kernel, plan):
            make_room(kernel, self.world)

    def _ready(self, plan: Plan, seq: Seq) -> bool:
        """A blocked request whose wait is over goes on; False: it still waits, or has ended."""
        status = seq.status
        if status is Status.WAITING or status is Status.PREEMPTED:
            return not self.kernel.awaits_delivery(seq)
        if status is Status.WAITING_FOR_REMOTE_KVS:
            transfer = seq.receive
            if transfer is None or transfer.state is State.ACTIVE:
                return False
            self.kernel.promote(seq, self._loaded(seq) if transfer.valid is None else transfer.valid)
            return not self.kernel.awaits_delivery(seq)
        if status is Status.WAITING_FOR_GRAMMAR:
            answer = self.world.grammar(seq)
            if answer == "ready":
                self.kernel.grammar_ready(seq)
                return True
            if answer == "failed":
                self.kernel.finish(seq, Status.FINISHED_ERROR)
                plan.failed.append(seq)
        return False

    def _loaded(self, seq: Seq) -> int:
        """Tokens that a complete load has made computed; the last known token is always computed again."""
        if self.rules.counts_loads:
            return min(seq.computed, len(seq.tokens) - 1)
        table = self.kernel.store.table(seq)[0]
        return min(len(table) * self.kernel.store.block_size, len(seq.tokens) - 1)

    def _admit(self, plan: Plan, seq: Seq) -> bool | None:
        """True: it runs. False: skipped. None: nothing more fits in this pass."""
        kernel, limits, world = self.kernel, self.limits, self.world
        hit: Hit | None = None
        external, background = 0, False
        computed = seq.computed
        if not seq.held_kv:
            hit = kernel.store.lookup(seq)
            if world.connected:
                found, background = world.match(seq, hit.tokens)
                if found is None:
                    return False
                external = seq.external = found
            computed = hit.tokens + external
        coded = limits.encoder > 0 and world.has_encoder(seq)
        if coded and not world.encoder_there(seq, computed):
            return False
        if background and external:
            return self._load(plan, seq, hit, external)
        new = len(seq.tokens) - computed
        if new <= 0:
            kernel.refuse(
                "refuse_full_match", f"{seq!r}: the connector leaves no token to compute", Party.CONNECTOR
            )
            external -= 1 - new
            seq.external = external
            new, computed = 1, len(seq.tokens) - 1
        room = self._room()
        padding = limits.drafts if self._pads(plan, computed, new) else 0
        new += padding
        if padding and new > room:
            return None
        if 0 < self._threshold < new:
            new = self._threshold
        if not limits.chunked and new > room:
            return None
        new = min(new, room)
        inputs: EncoderPlan | None = None
        cross = 0
        if coded:
            inputs = world.encoder_plan(seq, computed, new, self._encoder)
            new = inputs.new
            if new <= 0:
                if self.rules.returns_inputs:
                    world.encoder_free(seq)
                return None
            if limits.cross:
                needed = self.rules.cross_as_scheduled
                cross = world.encoder_size(seq, inputs.inputs) if needed else limits.cross
        lookahead = limits.lookahead if seq.computed or self.rules.looks_ahead_at_once else 0
        again = seq.status is Status.PREEMPTED and not seq.anew
        spare = limits.watermark if kernel.running else 0
        keep = spare + (kernel.promised(limits.lookahead, but=seq) if kernel.loads else 0)
        fresh = None
        if self._fits(seq, hit, cross, spare):
            fresh = kernel.admit(
                seq, new, hit, external=external, lookahead=lookahead, encoder=cross, keep=keep
            )
        if fresh is None:
            return self._refused(plan, seq, coded)
        table = kernel.store.table(seq)
        if world.connected:
            world.allocated(seq, table if hit is not None or self.rules.tells_table else fresh, external)
            if external:
                plan.loaded.add(seq.id)
        if hit is not None:
            world.found(seq, hit.tokens, external)
        (plan.resumed if again else plan.new).append(seq)
        seq.anew = False
        seq.computed = computed
        if seq.cached_tokens < 0:
            seq.cached_tokens = computed
        if computed + new < len(seq.tokens):
            self._prefills.add(seq)
        else:
            self._prefills.discard(seq)
        if padding:
            seq.drafts = [-1] * padding
        self._take(plan, seq, new, table, inputs)
        world.admitted(seq)
        return True

    def _pads(self, plan: Plan, computed: int, new: int) -> bool:
        """A row of one token is filled up with drafts, so that all rows of a decoding step have one length."""
        limits = self.limits
        return (
            self.rules.pads
            and limits.drafts > 0
            and limits.sampled > 0
            and new == 1
            and not self._reading
            and (bool(plan.running) or computed > 0)
            and computed + 1 + limits.drafts + limits.sampled <= limits.model_len
        )

    def _fits(self, seq: Seq, hit: Hit | None, cross: int, spare: int) -> bool:
        """All known tokens of the request would find blocks, where that is asked for."""
        if not self.limits.whole_fits:
            return True
        store = self.kernel.store
        return store.needs(seq, len(seq.tokens), hit, cross) + spare <= store.free

    def _refused(self, plan: Plan, seq: Seq, coded: bool) -> bool | None:
        """No blocks: the pass ends here; but a request that the whole pool could not hold ends in error."""
        if coded and self.rules.returns_inputs:
            self.world.encoder_free(seq)
        store = self.kernel.store
        if self.limits.whole_fits and store.needs(seq, len(seq.tokens)) + self._own(seq) > store.size - 1:
            self.kernel.finish(seq, Status.FINISHED_ERROR)
            plan.failed.append(seq)
            return True
        return None

    def _load(self, plan: Plan, seq: Seq, hit: Hit | None, external: int) -> bool | None:
        """A load in the background begins; the request is skipped until it is done."""
        kernel, limits = self.kernel, self.limits
        store, lookahead = kernel.store, limits.lookahead
        local = hit.tokens if hit else 0
        rest = store.needs(seq, len(seq.tokens) + 1 + lookahead, hit) - store.needs(
            seq, local + external, hit
        )
        spare = limits.watermark if kernel.running else 0
        keep = kernel.promised(lookahead) + rest
        if self.rules.reserves:
            keep = max(keep, spare + self._reserved() + limits.headroom)
        if not self._fits(seq, hit, 0, spare) or kernel.start_receive(seq, hit, external, keep=keep) is None:
            return self._refused(plan, seq, limits.encoder > 0 and self.world.has_encoder(seq))
        self.world.allocated(seq, store.table(seq), external)
        self.world.found(seq, local, external)
        if self.rules.counts_loads:
            seq.computed = local + external
        self._prefills.add(seq)
        return False

    def _reserved(self) -> int:
        """Blocks that prefills under way, and loads, need until all their known tokens have room."""
        limits, needs = self.limits, self.kernel.store.needs
        more = 1 + limits.drafts + limits.lookahead if limits.drafts else 0
        loads = self.kernel.loads
        self._prefills = {seq for seq in self._prefills if seq.status is Status.RUNNING or seq in loads}
        return sum(needs(seq, min(len(seq.tokens), limits.model_len) + more) for seq in self._prefills)
