"""The scripted connector's answers: each hook answers from the request's own script (`Life.match`, `Life.hold`).

What follows from an answer is the ledger's business.
"""

from __future__ import annotations

from typing import Any

from .ledger import Groups, Ledger
from .listen import listen
from .scope import Scope
from .truth import Truth


def attach(connector: Any, scope: Scope, truth: Truth, null: int) -> None:
    """Give the driver's own connector its script; listen to a connector of the user's, which answers for itself."""
    if not scope.connector_class:
        connector.script = TruthScript(truth, scope.block_size, null)
        return

    def breach(rule: str) -> None:
        truth.breakers.append("connector")
        truth.noticed.append(rule)

    listen(connector, Ledger(truth, scope.block_size, null), breach)


class TruthScript:
    """Implements `connector.Script` on a `Truth`."""

    def __init__(self, truth: Truth, block_size: int, null: int) -> None:
        self.ledger = Ledger(truth, block_size, null)

    def matched(self, request: Any, local: int) -> tuple[int | None, bool]:
        life = self.ledger.life(request)
        claimed = 0 if life is None else life.match.tokens(request.num_tokens, self.ledger.block_size)
        extra = None if claimed is None else max(0, claimed - local)
        between = bool(life and life.match.between_steps and extra)
        self.ledger.matched(request, local, extra, between)
        return extra, between

    def allocated(self, request: Any, blocks: Groups, external: int) -> None:
        self.ledger.allocated(request, blocks, external)

    def finished(self, request: Any, blocks: Groups) -> bool:
        life = self.ledger.life(request)
        sends = bool(life and life.hold and self.ledger.held(blocks))
        self.ledger.finished(request, blocks, sends)
        if life is not None and sends:
            life.parameters |= {"send"}
        return sends

    def other(self, hook: str, request: Any) -> None:
        self.ledger.record(hook, request)
