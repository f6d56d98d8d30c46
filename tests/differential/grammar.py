"""Structured output without a grammar compiler: a manager and grammars that follow the request's script.

Both are compared too: every call that reaches them is written down, with its arguments.
"""

from __future__ import annotations

from typing import Any

from tests.differential.settings import Add


class ScriptedGrammar:
    """Takes any token until the position at which its request says that it refuses."""

    def __init__(self, manager: Manager, script: Add) -> None:
        self.manager, self.script = manager, script
        self.taken = 0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        self.manager.told.append(("accept_tokens", request_id, list(tokens)))
        before, self.taken = self.taken, self.taken + len(tokens)
        return not before <= self.script.refuses < self.taken

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.manager.told.append(("validate_tokens", self.script.rid, list(tokens)))
        return list(tokens)[: max(0, len(tokens) - self.script.own % 2)]

    def rollback(self, num_tokens: int) -> None:
        self.taken -= num_tokens

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        self.taken = 0


class Manager:
    """A structured output manager of our own; takes the place of vLLM's."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.enable_in_reasoning = False

    def should_advance(self, request: Any) -> bool:
        return bool(request.use_structured_output)

    def accept_tokens(self, request: Any, new_token_ids: list[int]) -> bool:
        if not request.use_structured_output:
            return True
        taken: bool = request.structured_output_request.grammar.accept_tokens(
            request.request_id, new_token_ids
        )
        return taken

    def validate_tokens(self, request: Any, spec_tokens: list[int]) -> list[int]:
        if not request.use_structured_output:
            return spec_tokens
        real = [t for t in spec_tokens if t >= 0]
        kept: list[int] = request.structured_output_request.grammar.validate_tokens(real)
        return kept

    def grammar_bitmask(self, requests: Any, ids: list[str], drafts: dict[str, list[int]]) -> Any:
        kept = {rid: list(drafts[rid]) for rid in ids if rid in drafts}
        self.told.append(("grammar_bitmask", list(ids), kept))
        return ["mask", *ids]

    def grammar_init(self, request: Any) -> None:
        """Compilation is played by the environment."""

    def clear_backend(self) -> None:
        """Nothing to clear."""
