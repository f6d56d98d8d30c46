"""`update_from_output`: the answer of a step is processed row by row, and what clients are to hear is gathered.

A row is judged by the kernel: tokens of the current run are credited, those of an earlier run are delivered or dropped, and a
request that has ended gets nothing.  An answer that does not fit the step (no such step, a request left out, more tokens than
were awaited) is counted against the worker and costs at most the request that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm_lifecycle.adapters.vllm.verified.breaches import Breaches
from vllm_lifecycle.adapters.vllm.verified.loads import Loads
from vllm_lifecycle.adapters.vllm.verified.lockstep import answered, wants_logprobs
from vllm_lifecycle.adapters.vllm.verified.stats import Stats
from vllm_lifecycle.adapters.vllm.verified.stops import Stop
from vllm_lifecycle.adapters.vllm.verified.world import Surroundings
from vllm_lifecycle.spec.lifecycles.vocabulary import Party, Status
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.lanes import Lanes
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.steps import Row, Step


def number(step: Step | None) -> int | None:
    """The number of a step; None of no step."""
    return None if step is None else step.number


class Answers:
    """Processes answers; `outputs` of a call are vLLM's per client.

    A release's adapter derives from it and says how an output of a request is made.
    """

    def __init__(
        self,
        kernel: Kernel,
        world: Surroundings,
        loads: Loads,
        stats: Stats,
        breaches: Breaches,
        manager: Any,
        *,
        stop: Stop,
        model_len: int,
        hash_size: int,
        asynchronous: bool,
    ) -> None:
        self.kernel, self.world, self.loads = kernel, world, loads
        self.stats, self.breaches, self.manager = stats, breaches, manager
        self.asynchronous = asynchronous
        self.ended: list[Seq] = []
        self._stop, self._model_len, self._hash_size = stop, model_len, hash_size

    def output(self, seq: Seq, tokens: list[int], told: Any, **more: Any) -> Any:
        """What the request's client hears; `told` are parameters of a transfer."""
        raise NotImplementedError

    def process(self, step: Step | None, answer: Any) -> dict[int, list[Any]]:
        """Apply the answer of a step (None: of no step that is outstanding); the outputs by client, in order."""
        outputs: dict[int, list[Any]] = {}
        if step is None:
            self.breaches.count(Party.WORKER, "receive_output", "an output of no step that is outstanding")
        else:
            self.kernel.receive_output(step)
            self.world.encoders.answered(step.rows)
        report = answer.kv_connector_output
        which = number(step) if report else None
        received, sent = self.loads.matched(report, which) if report else ((), ())
        invalid = report.invalid_block_ids if report else None
        failed = self.loads.invalid(invalid) if invalid else ()
        if step is not None:
            self._rows(step, answer, outputs)
        if failed or self.world.doomed:
            for seq in (*failed, *self.world.doomed):
                self.end(seq)
            self.world.doomed.clear()
        if self.ended:
            for seq in self.ended:
                outputs.setdefault(seq.payload.client_index, []).append(self.output(seq, [], None))
            self.ended = []
        if report:
            self.world.connector_answered(report)
            self.loads.finished(received, sent, which)
        return outputs

    def end(self, seq: Seq) -> None:
        """The request ends with an error; its client hears of it with this answer or the next."""
        if self.kernel.seqs.get(seq.id) is seq and seq.reason is None:
            self.kernel.finish(seq, Status.FINISHED_ERROR)
            self.ended.append(seq)

    def refuse(self, seq: Seq) -> None:
        """A request that is not taken: its client hears of an error with the next answer."""
        seq.status = seq.reason = Status.FINISHED_ERROR
        self.ended.append(seq)

    def _rows(self, step: Step, answer: Any, outputs: dict[int, list[Any]]) -> None:
        columns, rows = self.kernel.columns, step.rows
        before: dict[Seq, Any] = {}
        make: Callable[[Any, Row], Any] = self.row
        if columns is not None:
            rows, before, make = answered(columns, step, answer, outputs, self)
        for one in rows:
            seq = one.seq
            made = before[seq] if seq in before else make(answer, one)
            if made is not None:
                client = outputs.get(seq.payload.client_index)
                if client is None:
                    outputs[seq.payload.client_index] = [made]
                else:
                    client.append(made)

    def row(self, answer: Any, row: Row) -> Any:
        """A row goes the general way; the output for its client, or None."""
        seq, rid = row.seq, row.seq.id
        worth = self.kernel.close_row(row)
        if worth == "dropped":
            return None
        sampled, pooled = answer.sampled_token_ids, answer.pooler_output
        place = answer.req_id_to_index.get(rid)
        if place is None or (sampled and place >= len(sampled)):
            self.breaches.count(Party.WORKER, "fail_unanswered_row", f"the answer lacks {rid}")
            self.end(seq)
            return None
        tokens: list[int] = sampled[place] if sampled else []
        vector = pooled[place] if pooled else None
        if row.drafts and tokens:
            self.drafted(row, len(tokens) - 1)
        reason: Status | None = None
        if seq.payload.pooling_params is None:
            tokens, reason = self._credit(row, worth == "current", tokens)
        elif vector is not None:
            reason = Status.FINISHED_STOPPED
        else:  # the prompt goes on, or its vector is missing: its last token is computed again
            self._credit(row, worth == "current", [])
        return self._conclude(answer, seq, tokens, reason, place, vector)

    def special(self, answer: Any, seq: Seq, tokens: list[int], place: int) -> Any:
        """The output of a lockstep decoder that is made by itself; its tokens are credited."""
        return self._conclude(answer, seq, tokens, None, place, None)

    def _conclude(
        self, answer: Any, seq: Seq, tokens: list[int], reason: Status | None, place: int, vector: Any
    ) -> Any:
        """What follows when a row's tokens are credited; the output for its client, or None."""
        request, rid = seq.payload, seq.id
        logprobs, prompts, nans = answer.logprobs, answer.prompt_logprobs_dict, answer.num_nans_in_logits
        if tokens and request.structured_output_request is not None:
            reason = self.judged(seq, tokens, reason)
        told = self.stopped(seq, reason) if reason is not None else None
        if tokens and request.structured_output_request is not None:
            self._advance(seq, tokens)
        if nans is not None and rid in nans:
            request.num_nans_in_logits = nans[rid]
        prompt = prompts.get(rid) if prompts else None
        if not (tokens or vector is not None or told):
            return None
        chosen = None
        params = request.sampling_params
        if logprobs and params is not None and wants_logprobs(params):
            chosen = logprobs.slice_request(place, len(tokens))
        return self.output(seq, tokens, told, logprobs=chosen, prompt_logprobs=prompt, vector=vector)

    def stopped(self, seq: Seq, reason: Status) -> Any:
        """Its tokens end the request; what the client is told of a transfer."""
        return self.kernel.finish(seq, reason)

    def judged(self, seq: Seq, tokens: list[int], reason: Status | None) -> Status | None:
        """Why the request ends, once its grammar has seen the tokens; as it was, unless a release says so."""
        return reason

    def usual(self, lanes: Lanes, tokens: Sequence[list[int]]) -> list[Any]:
        """What the clients of all lockstep decoders hear, in bulk."""
        raise NotImplementedError

    def extend_keys(self, seq: Seq) -> None:
        """Blocks that have become full get their keys."""
        new_keys = seq.payload.get_hash_new_full_blocks
        if new_keys is not None:
            seq.hashes.extend(new_keys())

    def drafted(self, row: Row, accepted: int) -> None:
        """So many of the row's drafts were right."""
        self.stats.drafted(row.drafts, accepted)

    def _credit(self, row: Row, current: bool, tokens: list[int]) -> tuple[list[int], Status | None]:
        """The row's tokens are appended up to one that ends the request; what was awaited in vain is rolled back."""
        seq, awaited = row.seq, row.awaited
        if len(tokens) > awaited:
            self.breaches.count(
                Party.WORKER, "credit_output", f"{len(tokens)} tokens for {seq.id}, {awaited} awaited"
            )
            tokens = tokens[:awaited]
        if current and awaited:
            if not tokens and seq.in_flight:  # what is in flight goes on from a token that is not there
                self.kernel.recompute(seq, len(seq.tokens) - 1)
                return tokens, None
            seq.computed -= awaited - len(tokens)
            if self.asynchronous:
                seq.placeholders -= awaited
        reason, got = None, len(tokens)
        for number, token in enumerate(tokens, 1):
            seq.tokens.append(token)
            seq.outputs.append(token)
            reason = self._stop(seq, self._model_len)
            if reason is not None:
                del tokens[number:]
                break
        if len(seq.tokens) // self._hash_size > len(seq.hashes):
            self.extend_keys(seq)
        if current and self.asynchronous and tokens:
            self.kernel.store.cache(seq, seq.computed - seq.placeholders - (got - len(tokens)))
        return tokens, reason

    def _advance(self, seq: Seq, tokens: list[int]) -> None:
        """The grammar follows the tokens."""
        try:
            if self.manager.should_advance(seq.payload):
                self.refuses(seq, seq.payload.structured_output_request.grammar.accept_tokens(seq.id, tokens))
        except Exception as error:
            self.world.doom(seq, "accept_tokens", None, error)

    def refuses(self, seq: Seq, accepted: bool) -> None:
        """What follows when a grammar does not take its own tokens; nothing, unless a release says so."""
