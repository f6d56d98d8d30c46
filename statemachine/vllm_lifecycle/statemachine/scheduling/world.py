"""What a pass asks of the outside: the connector, the grammar compiler and the encoder cache, as one protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from vllm_lifecycle.statemachine.kernel.seq import Seq


class EncoderPlan(NamedTuple):
    """Which encoder inputs a request needs for the tokens it is given: to compute, or to load from a remote cache.

    new     tokens that it can be given; budget: what is left of the step's encoder budget
    again   inputs that show what one of the others shows
    """

    inputs: list[int]
    new: int
    budget: int
    external: list[int]
    again: Sequence[int] = ()


class World(Protocol):
    """Answers of the outside. None of them raises: an adapter turns a failing hook into an answer (see `fails`)."""

    @property
    def connected(self) -> bool:
        """A KV connector is attached: `match` and `allocated` are asked."""

    def match(self, seq: Seq, local: int) -> tuple[int | None, bool]:
        """Tokens that the connector has beyond the `local` ones (None: not known yet), and whether it loads in the background."""

    def allocated(self, seq: Seq, table: tuple[list[int], ...], external: int) -> None:
        """The request has this table now, of which the connector fills `external` tokens."""

    def found(self, seq: Seq, local: int, external: int) -> None:
        """The request goes on with what the prefix cache and the connector had for it (statistics)."""

    def frees_pending(self) -> bool:
        """The connector will give blocks back soon, so nobody need be preempted."""

    def grammar(self, seq: Seq) -> str:
        """One of "ready", "pending", "failed"."""

    def has_encoder(self, seq: Seq) -> bool:
        """The request has encoder inputs."""

    def encoder_there(self, seq: Seq, computed: int) -> bool:
        """Encoder inputs that come from elsewhere and are needed after token `computed` have arrived."""

    def encoder_plan(self, seq: Seq, computed: int, new: int, budget: int) -> EncoderPlan:
        """What of its encoder inputs must be there for tokens `computed` to `computed + new`."""

    def encoder_take(self, seq: Seq, plan: EncoderPlan) -> None:
        """The inputs of the plan are entered in the encoder cache."""

    def encoder_size(self, seq: Seq, inputs: list[int]) -> int:
        """Embeddings of these inputs."""

    def encoder_free(self, seq: Seq) -> None:
        """The request needs none of its encoder inputs any more."""

    def admitted(self, seq: Seq) -> None:
        """The request runs now (an event for its client, statistics)."""

    def preempted(self, seq: Seq) -> None:
        """The request was preempted (an event for its client)."""
