"""Proof by induction for any number of individuals, in z3 (see `prove`, `obligations`, `counts`, `counterexample`)."""

from vllm_lifecycle.spec.check.induction.prove import Proof, prove, prove_actions, prove_property
from vllm_lifecycle.spec.check.induction.prover import Answer, Result
from vllm_lifecycle.spec.check.induction.ranking import Ranking, Rankings, helpful, members

__all__ = [
    "Answer",
    "Proof",
    "Ranking",
    "Rankings",
    "Result",
    "helpful",
    "members",
    "prove",
    "prove_actions",
    "prove_property",
]
