"""Listening to a connector that answers for itself: the ledger hears every hook, and answers are held against the interface.

The hooks are replaced on the instance, so that the scheduler calls the real connector and everything else of it stays as it is.
Worker-side methods are not touched: transfers are reported by whoever plays the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import rules
from .ledger import Groups, Ledger

Breach = Callable[[str], None]
HOOKS = (
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
    "request_finished",
    "request_finished_all_groups",
    "update_connector_output",
    "on_new_request",
    "reset_cache",
    "take_events",
)
"""The hooks that a scheduler calls, in any release; those that a connector lacks are passed over."""


def broken_rule(known: int, local: int, extra: int | None, between: bool) -> str:
    """The rule that a match breaks, for a request of `known` tokens of which `local` are computed; empty if none."""
    if extra is None:
        return ""
    if extra < 0:
        return rules.MATCH_NOT_NEGATIVE
    if between and not extra:
        return rules.NOTHING_BETWEEN_STEPS
    if local + extra > known:
        return rules.MATCH_WITHIN_REQUEST
    if extra and not between and local + extra == known:
        return rules.TOKEN_LEFT
    return ""


def listen(connector: Any, ledger: Ledger, breach: Breach) -> None:
    """Let the ledger hear the connector; `breach` is told each rule that an answer breaks."""
    for name in HOOKS:
        if hasattr(connector, name):
            setattr(connector, name, _surviving(getattr(connector, name), breach))
    match, allocate = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

    def matched(request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        extra, between = match(request, num_computed_tokens)
        rule = broken_rule(request.num_tokens, num_computed_tokens, extra, between)
        if rule:
            breach(rule)
        ledger.matched(request, num_computed_tokens, extra, between)
        return extra, between

    def allocated(request: Any, blocks: Any, num_external_tokens: int) -> None:
        ledger.allocated(request, _groups(blocks.get_block_ids()), num_external_tokens)
        allocate(request, blocks, num_external_tokens)

    connector.get_num_new_matched_tokens = matched
    connector.update_state_after_alloc = allocated
    told: list[Any] = []
    for hook, grouped in (("request_finished", False), ("request_finished_all_groups", True)):
        if hasattr(connector, hook):
            setattr(connector, hook, _finishing(getattr(connector, hook), ledger, grouped, told))


def _surviving(hook: Any, breach: Breach) -> Any:
    def called(*args: Any, **more: Any) -> Any:
        try:
            return hook(*args, **more)
        except Exception:
            breach(rules.HOOKS_RETURN)
            raise

    return called


def _finishing(finish: Any, ledger: Ledger, grouped: bool, told: list[Any]) -> Any:
    """A form of the hook; when one form calls the other, what the outer one answers counts."""

    def finished(request: Any, block_ids: Any) -> tuple[bool, Any]:
        blocks = _groups(block_ids if grouped else (block_ids,))
        told.append(request)
        try:
            sends, parameters = finish(request, block_ids)
        finally:
            told.pop()
        if not told:
            ledger.finished(request, blocks, bool(sends))
        return sends, parameters

    return finished


def _groups(block_ids: Any) -> Groups:
    return tuple(tuple(group) for group in block_ids)
