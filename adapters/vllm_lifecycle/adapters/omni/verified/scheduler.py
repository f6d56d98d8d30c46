"""The verified scheduler inside vllm-omni 0.16.0: blocks are handed on to the next stage, and stay until that is over.

Hand-offs are the kernel's (statemachine/kernel/handoffs.py): needed, shipped with a step, acknowledged. This class says what
triggers one, puts the blocks to copy into the step's output, and matches what the worker reports. What vllm-omni keeps in three
sets and a flag is read here from the kernel, under the same names. A request without room for its enrichment in the output (a
payload that cannot be read) ends with an error; the pass goes on.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import vllm_omni  # noqa: F401  (its patches of vLLM come before anything that reads the patched names)
from vllm_omni.core.sched.output import OmniNewRequestData, OmniSchedulerOutput

from vllm_lifecycle.adapters.omni.verified.answers import AnswersOmni, Facts
from vllm_lifecycle.adapters.omni.verified.chunks import Chunks, Gated, shows
from vllm_lifecycle.adapters.omni.verified.settings import Handing, handing
from vllm_lifecycle.adapters.omni.verified.v016 import VerifiedScheduler016
from vllm_lifecycle.adapters.vllm.verified.cacheview import kept
from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.spec.lifecycles.vocabulary import Transfer as State
from vllm_lifecycle.statemachine.kernel.columns import Columns
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel
from vllm_lifecycle.statemachine.kernel.paged import PagedStore
from vllm_lifecycle.statemachine.kernel.refusal import Refused
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.kernel.transfers import Transfer
from vllm_lifecycle.statemachine.scheduling.plan import Plan


class VerifiedOmniARScheduler(VerifiedScheduler016):
    """Runs inside vllm-omni 0.16.0 in place of its `OmniARScheduler`."""

    RELEASE = "omni-0.16.0"
    AHEAD = False
    OUTPUT = OmniSchedulerOutput

    _kernel: HandoffKernel
    _answers: AnswersOmni

    def _assemble(self, registry: Any) -> None:
        self._handing: Handing = handing(self.vllm_config.model_config)
        self.KERNEL = HandoffKernel if self._handing.sends else SessionKernel
        self._needed: list[Seq] = []
        self._shipped: dict[Seq, int] = {}
        chunked = bool(getattr(self.vllm_config.model_config, "async_chunk", False))
        self.chunk_transfer_adapter = Chunks(self.vllm_config) if chunked else None
        super()._assemble(registry)
        if self.chunk_transfer_adapter is not None:
            told = self._pass
            self._pass = Gated(told.kernel, told.policy, told.rules, told.limits, told.world)
            self._answers.sent = self.chunk_transfer_adapter.save_async

    def _make_answers(self) -> AnswersOmni:
        made: AnswersOmni = self._answers_of(AnswersOmni)
        made.facts = Facts(self._ends, made.extend_keys, self._handing)
        made.begin = self._begin
        return made

    def _columns(self, store: Any) -> Columns | None:
        gated = self.chunk_transfer_adapter is not None
        if gated or super()._columns(store) is None or not isinstance(store, PagedStore):
            return None
        return Columns(
            store,
            self._kernel.steps,
            self._answers.facts,
            ahead=False,
            model_len=self.max_model_len,
            prompt=self._world.connector is not None,
        )

    # what vllm-omni's scheduler keeps, read from the kernel

    def _handoffs(self, state: State) -> dict[str, Transfer]:
        seqs = self._kernel.seqs.values()
        return {s.id: s.handoff for s in seqs if s.handoff is not None and s.handoff.state is state}

    @property
    def requests_needing_kv_transfer(self) -> dict[str, dict[str, Any]]:
        """Hand-offs that the next step ships."""
        return {rid: _told(transfer) for rid, transfer in self._handoffs(State.NEEDED).items()}

    @property
    def active_kv_transfers(self) -> set[str]:
        """Requests whose hand-off was shipped and is not acknowledged."""
        return set(self._handoffs(State.ACTIVE))

    @property
    def waiting_for_transfer_free(self) -> set[str]:
        """Requests in the state WAITING_FOR_TRANSFER_FREE because of a hand-off: finished, their id and blocks held."""
        over = Status.WAITING_FOR_TRANSFER_FREE
        return {s.id for s in self._kernel.seqs.values() if s.status is over and s.handoff is not None}

    @property
    def transfer_triggered_requests(self) -> set[str]:
        """Requests whose hand-off was triggered while they ran."""
        return {seq.id for seq in self._kernel.seqs.values() if seq.triggered}

    @property
    def deferred_frees(self) -> list[tuple[Any, list[Any]]]:
        """Blocks beyond the tables: those that steps in flight hold, and (of no step) those of hand-offs."""
        make, beside, store = self._world.blocks, [], self._kernel.store
        assert isinstance(store, PagedStore)
        for seq in self._kernel.seqs.values():
            hold = seq.handoff.hold if seq.handoff is not None else None
            if hold is not None and kept(store, seq) is not hold.blocks:
                beside.append((None, list(make(hold.blocks).blocks[0])))
        return [*super().deferred_frees, *beside]

    def add_request(self, request: Any) -> None:
        if self.chunk_transfer_adapter is not None and request.request_id not in self._kernel.seqs:
            self.chunk_transfer_adapter.begin(request)
        super().add_request(request)
        if isinstance(self._pass, Gated) and hasattr(request, "_seq"):
            shows(request, self._pass)

    # hand-offs begin

    def _begin(self, seq: Seq, tokens: int) -> None:
        self._kernel.trigger_handoff(seq, tokens)
        self._needed.append(seq)

    def _finishing(self, seq: Seq) -> tuple[bool, Any]:
        hold, told = super()._finishing(seq)
        self._answers.facts.wanted.pop(seq, None)
        if self.chunk_transfer_adapter is not None:
            self.chunk_transfer_adapter.forget(seq)
        transfer = seq.handoff
        if transfer is None or transfer.state is not State.NEEDED:
            return hold, told
        if seq not in self._needed:
            self._needed.append(seq)
        named = _told(transfer)
        ours = {"past_key_values": named["block_ids"], "kv_metadata": named}
        _inform(seq.payload, ours)
        return hold, {**(told or {}), **ours}

    # steps

    def schedule(self) -> Any:
        if self._handing.timeout:
            self._give_up()
        output = self._gated() if self.chunk_transfer_adapter is not None else super().schedule()
        shipped = output.finished_requests_needing_kv_transfer = {}
        for seq in self._needed:
            if seq.handoff is not None and seq.handoff.state is State.NEEDED:
                shipped[seq.id] = _told(self._kernel.ship_handoff(seq))
                self._shipped[seq] = self._kernel.steps.number
        self._needed = []
        return output

    def _gated(self) -> Any:
        """A pass without those who wait for a chunk."""
        kernel, adapter, gate = self._kernel, self.chunk_transfer_adapter, self._pass
        assert adapter is not None and isinstance(gate, Gated)
        waiting = (
            [*kernel.waiting] if kernel.holding is kernel.waiting else [*kernel.waiting, *kernel.holding]
        )
        gate.parked = adapter.park([*waiting, *kernel.running])
        output = super().schedule()
        adapter.postprocess_scheduler_output(output, self.requests)
        return output

    def _give_up(self) -> None:
        for seq, kind in self._kernel.give_up_transfers(monotonic() - self._handing.timeout):
            self.breaches.count(
                Party.WORKER, "transfer_timeout", f"the {kind.name.lower()} of {seq.id} is given up"
            )

    def _new(self, plan: Plan, seq: Seq) -> Any:
        table = tuple(list(group) for group in plan.fresh[seq.id])
        request, payload = seq.payload, {}
        try:
            payload = {
                "external_req_id": getattr(request, "external_req_id", None),
                "prompt_embeds": getattr(request, "prompt_embeds", None),
                "additional_information": getattr(request, "additional_information", None),
            }
        except Exception as error:
            self._world.doom(seq, "enrichment", None, error)
        return OmniNewRequestData(
            req_id=seq.id,
            prompt_token_ids=request.prompt_token_ids,
            mm_features=request.mm_features,
            sampling_params=request.sampling_params,
            pooling_params=request.pooling_params,
            block_ids=table,
            num_computed_tokens=seq.computed,
            lora_request=request.lora_request,
            **payload,
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        step = self._step_of(scheduler_output)
        for seq in self.chunk_transfer_adapter.overdue() if self.chunk_transfer_adapter is not None else ():
            self.breaches.count(Party.CONNECTOR, "chunk_timeout", f"{seq.id} is given up")
            self._answers.end(seq)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        reported = getattr(model_runner_output, "kv_extracted_req_ids", None) or ()
        if not self._handing.sends:
            for rid in reported:
                self.breaches.count(Party.WORKER, "acknowledge", f"{rid}: hand-offs are not asked for")
        elif step is not None and (reported or self._shipped):
            self._acknowledged(step.number, reported, bool(scheduler_output.num_scheduled_tokens))
        elif reported:
            self.breaches.count(Party.WORKER, "acknowledge", "acknowledgements with the answer to no step")
        return outputs

    # hand-offs end

    def _acknowledged(self, number: int, reported: Any, tokens: bool) -> None:
        """Reports of hand-offs that this step or one before it shipped; more is not known to be copied yet."""
        for rid in reported:
            seq = self._kernel.seqs.get(rid)
            if seq is not None and self._shipped.get(seq, number + 1) > number:
                self.breaches.count(
                    Party.WORKER, "acknowledge", f"the hand-off of {rid} is not shipped so far"
                )
                continue
            try:
                self._kernel.handoff_acknowledged(rid)
            except Refused as refusal:
                self.breaches.refused(refusal)
        for seq, shipped in list(self._shipped.items()):
            if seq.handoff is None or seq.id not in self._kernel.seqs:
                del self._shipped[seq]
            elif shipped == number and not tokens and self._handing.in_step:
                self._kernel.handoff_acknowledged(seq.id)
                del self._shipped[seq]

    # the engine stays awake

    def has_unfinished_requests(self) -> bool:
        return bool(super().has_unfinished_requests()) or self._hands_on()

    def has_finished_requests(self) -> bool:
        return bool(super().has_finished_requests()) or self._hands_on()

    def has_requests(self) -> bool:
        return self.has_unfinished_requests() or self.has_finished_requests()

    def _hands_on(self) -> bool:
        return bool(self._needed or self._shipped) and any(s.handoff for s in self._kernel.seqs.values())


def _told(transfer: Transfer) -> dict[str, Any]:
    """What the worker is told of a hand-off."""
    assert transfer.hold is not None
    return {"seq_len": transfer.tokens, "block_ids": list(transfer.hold.blocks[0])}


def _inform(request: Any, parameters: dict[str, Any]) -> None:
    """The request's additional information, where it is a dictionary or can be made one, has the parameters, too."""
    known = getattr(request, "additional_information", None)
    entries = getattr(known, "entries", None)
    if isinstance(entries, dict):
        known = {k: v.list_data for k, v in entries.items() if getattr(v, "list_data", None) is not None}
    if known is None:
        known = {}
    if isinstance(known, dict):
        known.update(parameters)
        request.additional_information = known
