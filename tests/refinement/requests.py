"""The requests that kernels are tried with: a token per block, and equal prefixes for all of them."""

from __future__ import annotations

from collections.abc import Hashable

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.seq import Seq

LONGEST = 2
"""Tokens that a request may have; a prompt has one or two."""


def learn(seq: Seq, *tokens: int) -> None:
    """Tokens become known; each full block has its key."""
    seq.tokens.extend(tokens)
    seq.outputs.extend(tokens)
    seq.hashes[:] = [tuple(seq.tokens[: i + 1]) for i in range(len(seq.tokens))]


def new(r: str, prompt: int, status: Status = Status.WAITING, length: int = 0) -> Seq:
    """A request with `prompt` tokens, equal for all requests, of which `length` tokens are known by now."""
    seq = Seq(r, None, [0] * prompt, [], [], limit=LONGEST, status=status)
    learn(seq, *[7] * (length - prompt))
    return seq


KEYS: dict[Hashable, int] = {(0,): 1, (0, 0): 2, (0, 7): 3}
"""The keys that a full block of such a request can have, as numbers; 0 is for none."""
