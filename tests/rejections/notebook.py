"""A small specification without a mistake, and the cases that write one mistake into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from vllm_lifecycle.spec.lang.build import Individual, SetOf, State, forall
from vllm_lifecycle.spec.lang.claims import Implication, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort


class Request(Individual):
    """A sort."""


class Block(Individual):
    """A sort."""


class Light(Enum):
    """States of a lifecycle."""

    RED = "RED"
    GREEN = "GREEN"
    DARK = "DARK"


class Taste(Enum):
    """Another enum."""

    SWEET = "SWEET"


def notebook() -> Spec:
    """A specification without a mistake."""
    spec = Spec("example")
    spec.const("top")
    spec.var("light", Request, to=Light, init=Light.RED, module="m")
    spec.var("table", Request, Block, module="m")
    spec.var("free", Block, init=True, module="n")
    spec.var("size", to=IntSort(0, 3), init=0, module="m")
    spec.var("truth", Block, module="m", ghost=True)

    @spec.action(by="client", feature="core")
    def switch(s: State, r: Request) -> None:
        s.require(s.light[r] == Light.RED, "it is red")
        s.light[r] = Light.GREEN

    @spec.action(by="client", feature="night")
    def take(s: State, r: Request, chosen: SetOf[Block]) -> None:
        s.require(forall(Block, lambda b: chosen[b] >> s.free[b]))
        s.table[r, :] = lambda b: chosen[b]
        s.free[:] = lambda b: s.free[b] & ~chosen[b]

    @spec.safety()
    def a_free_block_is_in_no_table(s: State, r: Request, b: Block) -> Implication:
        return when(s.free[b]).then(~s.table[r, b])

    return spec


Function = Callable[..., Any]
Mistake = Callable[[Spec], object]


@dataclass
class Cases:
    """Mistakes by name, each with the part of the message that is the repair."""

    rows: dict[str, tuple[Mistake, str]] = field(default_factory=dict)

    def rejects(self, message: str) -> Callable[[Mistake], Mistake]:
        """What the function writes is rejected."""

        def add(mistake: Mistake) -> Mistake:
            self._add(mistake.__name__, mistake, message)
            return mistake

        return add

    def body(self, message: str) -> Callable[[Function], Function]:
        """The function is rejected as the body of an action."""

        def add(function: Function) -> Function:
            name = function.__name__
            self._add(name, lambda spec: spec.action(by="client")(function), f"{name}: {message}")
            return function

        return add

    def claim(self, message: str, kind: str = "safety") -> Callable[[Function], Function]:
        """The function is rejected as a property."""

        def add(function: Function) -> Function:
            name = function.__name__
            self._add(name, lambda spec: getattr(spec, kind)()(function), f"{name}: {message}")
            return function

        return add

    def _add(self, name: str, mistake: Mistake, message: str) -> None:
        assert name not in self.rows, f"two cases are named {name}"
        self.rows[name] = (mistake, message)

    def each(self) -> pytest.MarkDecorator:
        """A parametrization over all cases written above."""
        return pytest.mark.parametrize("name", list(self.rows))

    def check(self, name: str) -> None:
        """The mistake is rejected, in one line that has the repair, and leaves no trace."""
        mistake, message = self.rows[name]
        spec = notebook()
        with pytest.raises(DefinitionError) as refusal:
            mistake(spec)
        assert type(refusal.value) is DefinitionError
        assert message in str(refusal.value), str(refusal.value)
        assert "\n" not in str(refusal.value)
        assert len(spec.seal().actions) >= 2
