"""All mutants of the specification: importing this package registers them."""

from vllm_lifecycle.spec.mutants import kinds, omni, vllm
from vllm_lifecycle.spec.mutants.mutant import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "kinds", "omni", "vllm"]
