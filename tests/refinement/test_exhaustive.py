"""Small scopes, exhaustively: every state that the kernel can reach, every move from it matched; counts are pinned.

A count that changes says that the kernel reaches other states than before: look why before pinning the new one.
"""

from __future__ import annotations

import pytest
from tests.refinement.conftest import compiled
from tests.refinement.search import explore

from vllm_lifecycle.statemachine.kernel.correspondence import CORRESPONDS
from vllm_lifecycle.statemachine.kernel.handoffs import HandoffKernel

SCOPES = {
    "one request, two steps in flight, preempted": (
        (1, 2, 2),
        ("core", "preemption"),
        (1,),
        (10020, 18615, 2323),
    ),
    "prefix cache": ((1, 2, 1), ("core", "prefix", "preemption"), (1, 2), (1574, 3164, 880)),
    "load, send and failure": ((1, 2, 1), ("core", "load", "send", "load_failure"), (2,), (3633, 6905, 4577)),
    "grammar and resets": ((1, 2, 1), ("core", "grammar", "reset", "prefix"), (1,), (1436, 4203, 838)),
    "two requests": ((2, 1, 1), ("core",), (1,), (3311, 7363, 1376)),
    "hand-off": ((1, 2, 1), ("core", "handoff"), (1,), (1102, 1856, 1147)),
    "hand-off, send and receive": (
        (1, 1, 1),
        ("core", "handoff", "send", "load"),
        (1,),
        (1904, 3514, 3493),
    ),
}
"""Name -> requests x blocks x steps, features, prompt lengths, and (states, moves made, moves refused)."""


@pytest.mark.parametrize("name", SCOPES)
def test_every_move_of_the_kernel_is_one_of_the_specification(name: str) -> None:
    size, features, prompts, counts = SCOPES[name]
    found = explore(compiled(*size, features), prompts)
    assert (found.states, found.made, found.refused) == counts


def test_the_table_names_operations_and_actions_that_exist() -> None:
    from vllm_lifecycle.spec.lifecycles.system import SYSTEM

    actions = {action.name for action in SYSTEM.actions}
    for operation, names in CORRESPONDS.items():
        assert callable(getattr(HandoffKernel, operation))
        assert set(names) <= actions, operation
