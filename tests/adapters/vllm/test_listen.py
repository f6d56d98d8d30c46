"""The rules that a connector's answers are held against, and the books that follow from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_lifecycle.adapters.vllm.ledger import Ledger
from vllm_lifecycle.adapters.vllm.listen import broken_rule, listen
from vllm_lifecycle.adapters.vllm.scope import NO_MATCH
from vllm_lifecycle.adapters.vllm.truth import Life, Truth


@pytest.mark.parametrize(
    ("local", "extra", "between", "rule"),
    [
        (0, None, False, ""),
        (0, 0, False, ""),
        (0, 7, False, ""),
        (0, 8, True, ""),
        (4, 3, False, ""),
        (0, -1, False, "not negative"),
        (0, 0, True, "not loaded between steps"),
        (4, 5, True, "no longer than the request"),
        (4, 4, False, "leaves a token to compute"),
    ],
)
def test_a_match_keeps_the_rules_of_the_interface(
    local: int, extra: int | None, between: bool, rule: str
) -> None:
    told = broken_rule(8, local, extra, between)
    assert rule in told
    assert bool(told) == bool(rule)


class Keeper:
    """A connector whose one form of the hook calls the other."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 4, True

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        raise KeyError(request.request_id)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return True, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        return self.request_finished(request, block_ids[0])


def test_each_agreement_is_written_down_once() -> None:
    request = SimpleNamespace(request_id="r0", num_tokens=8)
    truth, rules, connector = Truth(), list[str](), Keeper()
    truth.lives["r0"] = Life("r0", 0, request, NO_MATCH, False, 8, 1, False, 1)
    listen(connector, Ledger(truth, 4, 0), rules.append)
    assert connector.get_num_new_matched_tokens(request, 0) == (4, True)
    blocks = SimpleNamespace(get_block_ids=lambda: ([1, 2],))
    with pytest.raises(KeyError):
        connector.update_state_after_alloc(request, blocks, 4)
    connector.request_finished_all_groups(request, ([1, 2],))
    assert [(t.kind, t.blocks) for t in truth.transfers] == [("receive", (1,)), ("send", (1, 2))]
    assert truth.lives["r0"].finished_calls == 1
    assert rules == ["no exception leaves a hook of the connector"]
