"""Claims: how a property says its interesting case and what holds there."""

from __future__ import annotations

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Expr, every
from vllm_lifecycle.spec.lang.sorts import DefinitionError


class Implication:
    """`when(antecedent).then(consequent)`: a property with its interesting case, which must be reachable."""

    def __init__(self, antecedent: Expr, consequent: Expr) -> None:
        self.antecedent = antecedent
        self.consequent = consequent


def always(*claim: object) -> Implication:
    """A claim without a case: it cannot hold for want of cases, so it needs no witness."""
    return Implication(Expr(t.TRUE), every(*claim))


class when:  # noqa: N801 - reads as a word of the language
    """Start of a property: `when(antecedent).then(consequent)`."""

    def __init__(self, *antecedent: object) -> None:
        self._antecedent = every(*antecedent)

    def then(self, *consequent: object) -> Implication:
        """The claim wherever the antecedent holds."""
        if self._antecedent.term == t.TRUE:
            raise DefinitionError(
                "the antecedent is always true: name the interesting case, or write always(claim)"
            )
        return Implication(self._antecedent, every(*consequent))
