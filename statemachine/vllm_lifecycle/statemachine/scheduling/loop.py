"""A pass of continuous batching: running requests first, in their order; then waiting ones, while budget and slots last.

One loop serves prefill and decode: a request is given as many tokens as it lacks. What may be done is the kernel's business,
in which order the policy's; this module knows budgets. A running request that finds no blocks makes a victim of the policy's
choice give way, at most until it is its own turn; after a preemption nobody is admitted in the same pass. A request that
holds or will hold more than the whole pool ends in error instead of preempting itself for ever.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.store import Hit
from vllm_lifecycle.statemachine.policies.policy import Policy
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.rules import Limits, Rules
from vllm_lifecycle.statemachine.scheduling.world import EncoderPlan, World


class Scheduling:
    """Builds plans; `kernel.dispatch` makes a step of one."""

    def __init__(self, kernel: Kernel, policy: Policy, rules: Rules, limits: Limits, world: World) -> None:
        self.kernel = kernel
        self.policy = policy
        self.rules = rules
        self.limits = limits
        self.world = world
        self._budget = 0
        self._encoder = 0

    def plan(self) -> Plan:
        """One pass. The plan is not dispatched yet: `computed` of its requests is what it was before the step."""
        plan = Plan()
        self._budget = self.limits.tokens
        self._encoder = self.limits.encoder
        self._serve_running(plan)
        if not plan.preempted:
            self._serve_waiting(plan)
        return plan

    def settle(self, plan: Plan) -> None:
        """After the dispatch: outputs that are awaited from the step (asynchronous scheduling)."""
        if not self.rules.asynchronous:
            return
        seqs = self.kernel.seqs
        draft = [-1] * self.limits.drafts
        for id in plan.tokens:
            seq = seqs[id]
            ridden = len(plan.drafts.get(id, ()))
            if seq.computed == len(seq.tokens) + seq.placeholders + ridden:
                seq.placeholders += 1 + ridden
                seq.drafts = draft.copy()

    # running requests

    def _serve_running(self, plan: Plan) -> None:
        running = self.kernel.running
        index = 0
        while index < len(running) and self._budget > 0:
            seq = running[index]
            index += 1
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
                if running.index(victim) < index:
                    index -= 1
                if self._give_way(plan, victim, seq):
                    return
                fresh = self.kernel.resume_running(seq, new, lookahead=self.limits.lookahead)
            self._take(plan, seq, new, fresh, inputs)
            plan.running.append(seq)

    def _lacking(self, seq: Seq) -> int:
        """Tokens that a running request is given: all that it lacks, within the bounds; 0 or less: it sits this pass out."""
        awaited = seq.placeholders
        if awaited and seq.computed + 2 - awaited >= seq.prompt + seq.limit:
            return 0
        new = len(seq.tokens) + len(seq.drafts) + awaited - seq.computed
        threshold = self.limits.threshold
        if 0 < threshold < new:
            new = threshold
        return min(new, self._budget, self.limits.model_len - 1 - seq.computed)

    def _give_way(self, plan: Plan, victim: Seq, requester: Seq) -> bool:
        """The victim is preempted, its part in this pass undone; True when the requester itself gave way."""
        if victim.id in plan.tokens:
            tokens, inputs = plan.undo(victim)
            self._budget += tokens
            self._encoder += self.world.encoder_size(victim, inputs) if inputs else 0
        alone = victim is requester and self.kernel.store.free + self._own(victim) >= self.kernel.store.size - 1
        if alone:
            self.kernel.finish(victim, Status.FINISHED_ERROR)
            plan.failed.append(victim)
            return True
        self.world.encoder_free(victim)
        self.kernel.preempt(victim)
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
        if seq.drafts:
            ridden = new + seq.computed - len(seq.tokens) - seq.placeholders
            if ridden > 0:
                plan.drafts[seq.id] = seq.drafts[:ridden]
            seq.drafts = []
        if inputs is not None:
            if inputs.inputs:
                plan.encoder[seq.id] = inputs.inputs
                self._encoder = inputs.budget
            self.world.encoder_take(seq, inputs)

    # waiting requests

    def _serve_waiting(self, plan: Plan) -> None:
        kernel = self.kernel
        queue = kernel.waiting
        loras = {seq.lora for seq in plan.running if seq.lora} if self.limits.loras else set()
        skipped: list[Seq] = []
        while len(queue) and self._budget > 0:
            seq = queue.peek()
            if not kernel.slot_is_free() and seq not in kernel.loads:
                break
            if not self._ready(plan, seq):
                if seq.status is Status.FREED or seq.status is Status.WAITING_FOR_TRANSFER_FREE:
                    continue
            elif not (
                self.limits.loras and seq.lora and seq.lora not in loras and len(loras) >= self.limits.loras
            ):
                answer = self._admit(plan, seq)
                if answer is None:
                    break
                if answer:
                    if seq.lora:
                        loras.add(seq.lora)
                    continue
            queue.remove(seq)
            skipped.append(seq)
        if skipped:
            queue.put_back(skipped)

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
        (table,) = self.kernel.store.table(seq)
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
        if background and external:
            return self._load(seq, hit, external)
        new = len(seq.tokens) - computed
        if new <= 0:
            kernel.refuse(
                "refuse_full_match", f"{seq!r}: the connector leaves no token to compute", Party.CONNECTOR
            )
            external -= 1 - new
            seq.external = external
            new, computed = 1, len(seq.tokens) - 1
        if 0 < limits.threshold < new:
            new = limits.threshold
        if not limits.chunked and new > self._budget:
            return None
        new = min(new, self._budget)
        inputs: EncoderPlan | None = None
        cross = 0
        if limits.encoder and world.has_encoder(seq):
            inputs = world.encoder_plan(seq, computed, new, self._encoder)
            new = inputs.new
            if new <= 0:
                return None
            cross = limits.cross
        lookahead = limits.lookahead if seq.computed else 0
        again = seq.status is Status.PREEMPTED
        keep = kernel.promised(limits.lookahead, but=seq) if kernel.loads else 0
        if (
            kernel.admit(seq, new, hit, external=external, lookahead=lookahead, encoder=cross, keep=keep)
            is None
        ):
            return None
        table = kernel.store.table(seq)
        if world.connected:
            world.allocated(seq, table, external)
            if external:
                plan.loaded.add(seq.id)
        (plan.resumed if again else plan.new).append(seq)
        seq.computed = computed
        if seq.cached_tokens < 0:
            seq.cached_tokens = computed
        self._take(plan, seq, new, table, inputs)
        world.admitted(seq)
        return True

    def _load(self, seq: Seq, hit: Hit | None, external: int) -> bool | None:
        """A load in the background begins; the request is skipped until it is done."""
        store, lookahead = self.kernel.store, self.limits.lookahead
        loaded = (hit.tokens if hit else 0) + external
        rest = store.needs(seq, len(seq.tokens) + 1 + lookahead, hit) - store.needs(seq, loaded, hit)
        fresh = self.kernel.start_receive(seq, hit, external, keep=self.kernel.promised(lookahead) + rest)
        if fresh is None:
            return None
        self.world.allocated(seq, self.kernel.store.table(seq), external)
        return False
