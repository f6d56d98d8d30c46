"""Proof by induction for any number of individuals, in z3 (see `prove`, `obligations`, `counts`, `counterexample`)."""

from vllm_lifecycle.spec.check.induction.prove import Proof, prove, prove_property
from vllm_lifecycle.spec.check.induction.prover import Result, Status

__all__ = ["Proof", "Result", "Status", "prove", "prove_property"]
