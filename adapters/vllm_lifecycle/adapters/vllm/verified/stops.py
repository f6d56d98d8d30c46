"""When a request is done: the end token, stop tokens, its length and the model's length, in the release's order of tests."""

from __future__ import annotations

from collections.abc import Callable

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.seq import Seq

Stop = Callable[[Seq, int], Status | None]
"""After a token was appended: why the request ends with it, or None; the second argument is the model's longest sequence."""


def least_first(seq: Seq, model_len: int) -> Status | None:
    """As vLLM 0.13.0: below the least length nothing ends a request; but, other than there, the model's length does."""
    request = seq.payload
    params = request.sampling_params
    produced = len(seq.outputs)
    if produced < params.min_tokens:
        return Status.FINISHED_LENGTH_CAPPED if len(seq.tokens) >= model_len else None
    token = seq.outputs[-1]
    if not params.ignore_eos and token == request.eos_token_id:
        return Status.FINISHED_STOPPED
    if params.stop_token_ids and token in params.stop_token_ids:
        request.stop_reason = token
        return Status.FINISHED_STOPPED
    if len(seq.tokens) >= model_len or produced >= seq.limit:
        return Status.FINISHED_LENGTH_CAPPED
    return None
