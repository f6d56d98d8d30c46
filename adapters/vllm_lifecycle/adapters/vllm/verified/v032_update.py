"""`update_from_output` on vLLM 0.32.0: stops in its order, grammars asked before the end, loads that fail by request.

Cited: update_from_output, _handle_failed_recving and _update_from_kv_xfer_finished of v1/core/sched/scheduler.py; check_stop of
v1/core/sched/utils.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any

from vllm.v1.core.sched.utils import check_sequence_repetition
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.request import RequestStatus

from vllm_lifecycle.adapters.vllm.verified.loads import Loads
from vllm_lifecycle.adapters.vllm.verified.lockstep import HEADERS
from vllm_lifecycle.adapters.vllm.verified.update import Answers, number
from vllm_lifecycle.adapters.vllm.verified.v032_stats import Stats032
from vllm_lifecycle.adapters.vllm.verified.v032_world import Surroundings032
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.lanes import Lanes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step


def ends_first(seq: Seq, model_len: int) -> Status | None:
    """As vLLM 0.32.0: end tokens and lengths end a request at any length, repetition only from the least length on."""
    request = seq.payload
    params = request.sampling_params
    token = seq.outputs[-1]
    if token == params.eos_token_id:
        return Status.FINISHED_STOPPED
    if params.stop_token_ids and token in params.stop_token_ids:
        request.stop_reason = token
        return Status.FINISHED_STOPPED
    produced = len(seq.outputs)
    if len(seq.tokens) >= model_len or produced >= seq.limit:
        return Status.FINISHED_LENGTH_CAPPED
    repetition = params.repetition_detection
    if (
        repetition is not None
        and produced >= params.min_tokens
        and check_sequence_repetition(request.output_token_ids, repetition)
    ):
        request.stop_reason = "repetition_detected"
        return Status.FINISHED_REPETITION
    return None


class Loads032(Loads):
    """Loads, where requests that end for them do so in order of arrival; the original takes the order of a set."""

    def invalid(self, blocks: set[int]) -> list[Seq]:
        return sorted(super().invalid(blocks), key=lambda seq: seq.epoch)


class Answers032(Answers):
    """Answers, with the outputs of 0.32.0.

    masks       sampling masks go to the client
    detailed    each step's drafts are told to the client, not only their sums
    transfer_stats  what the two connectors had to report with the last answer; asked for before their events
    invalid     id -> drafts of the step that the grammar had ruled out
    """

    stats: Stats032
    world: Surroundings032
    masks = False
    detailed = False
    invalid: Mapping[str, int] = MappingProxyType({})
    transfer_stats: tuple[Any, Any] = (None, None)
    _answer: Any = None

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        self._answer, world = answer, self.world
        report, encodings = answer.kv_connector_output, answer.ec_connector_output
        encoder = world.encoder_connector is not None
        if report and report.failed_recving:
            self._failed(report.failed_recving, number(step))
        for rid in world.unavailable() if encoder else ():
            seq = self.kernel.seqs.get(rid)
            if seq is not None:
                world.doomed[seq] = "take_unavailable_requests"
        outputs = super().process(step, answer)
        if encoder:
            world.encoder_answered(encodings)
        self.transfer_stats = (
            world.connector_stats(report) if report or world.connector is not None else None,
            world.encoder_stats(encodings) if encodings or encoder else None,
        )
        self._answer = None
        return outputs

    def _failed(self, ids: set[str], step: int | None) -> None:
        """Loads that failed as a whole: nothing came, or the request ends, as the deployment says."""
        for rid in ids:
            seq = self.loads.nothing_came(rid, step)
            if seq is not None and not self.loads.recompute:
                self.world.doomed[seq] = "failed_recving"

    def extend_keys(self, seq: Seq) -> None:
        seq.payload.update_block_hashes()

    def drafted(self, row: Row, accepted: int) -> None:
        accepted = max(accepted, 0)
        invalid = self.invalid.get(row.seq.id, 0)
        self.stats.drafted(row.drafts, accepted, invalid)
        metrics = row.seq.payload.spec_decode_metrics
        if metrics is not None:
            metrics.observe(
                num_draft_tokens=row.drafts - invalid, num_accepted=accepted, detailed=self.detailed
            )

    def judged(self, seq: Seq, tokens: list[int], reason: Status | None) -> Status | None:
        try:
            if not self.manager.accept_tokens(seq.payload, tokens):
                return Status.FINISHED_ERROR
        except Exception as error:
            self.world.doom(seq, "accept_tokens", None, error)
        return reason

    def usual(self, lanes: Lanes, tokens: Sequence[list[int]]) -> list[Any]:
        if lanes.blank[HEADERS]:
            return list(map(EngineCoreOutput, lanes.ids, tokens))
        headers = lanes.constants[HEADERS]
        return list(map(EngineCoreOutput, lanes.ids, tokens, *[repeat(None)] * 8, headers))

    def _advance(self, seq: Seq, tokens: list[int]) -> None:
        """The grammar was asked when the tokens were credited."""

    def output(self, seq: Seq, tokens: list[int], told: Any, **more: Any) -> Any:
        request, answer = seq.payload, self._answer
        ended = seq.reason is not None
        of_kv, of_encodings = told if told is not None else (None, None)
        prefill = mask = scored = None
        if more:
            prefill = request.take_prefill_stats()
            if prefill is not None and not ended:
                prefill.finalize(self.world.keyed(seq))
            if ended and prefill is not None and of_kv and of_kv.get("do_remote_prefill"):
                of_kv["remote_prefill_cached_tokens"] = prefill.num_cached_tokens
            if self.masks and tokens and answer.sampling_masks is not None:
                mask = answer.sampling_masks.slice_request(answer.req_id_to_index[seq.id], len(tokens))
            if answer.prompt_token_id_logprobs_dict:
                scored = answer.prompt_token_id_logprobs_dict.get(seq.id)
        return EngineCoreOutput(
            request_id=seq.id,
            new_token_ids=tokens,
            finish_reason=RequestStatus.get_finished_reason(request.status) if ended else None,
            new_logprobs=more.get("logprobs"),
            new_sampling_mask=mask,
            new_prompt_logprobs_tensors=more.get("prompt_logprobs"),
            prompt_token_id_logprobs=scored,
            pooling_output=more.get("vector"),
            stop_reason=request.stop_reason,
            events=request.take_events() if request.events else None,
            prefill_stats=prefill,
            spec_decode_metrics=request.spec_decode_metrics if ended and more else None,
            kv_transfer_params=of_kv,
            ec_transfer_params=of_encodings,
            trace_headers=request.trace_headers,
            num_nans_in_logits=request.num_nans_in_logits,
        )
