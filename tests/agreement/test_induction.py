"""Proof and exploration of random specifications do not contradict each other: what is proved for any size falls at none."""

from __future__ import annotations

import pytest
from tests.agreement.naive import search
from tests.agreement.specs import example

from vllm_lifecycle.spec.check.induction.prove import prove
from vllm_lifecycle.spec.check.verdict import Outcome

IN_A_TEST = 20


@pytest.mark.parametrize("first", range(0, 40, IN_A_TEST))
def test_what_is_proved_is_never_refuted(first: int) -> None:
    proved = refuted = 0
    for seed in range(first, first + IN_A_TEST):
        this = example(seed)
        naive = search(this.machine, this.domain, max_states=150)
        proof = prove(this.machine, seeds=(0,), jobs=1)
        outcomes = {v.claim: v.outcome for v in proof.verdicts}
        for prop in this.machine.properties:
            if prop.name in naive.lengths:
                assert outcomes[prop.name] is not Outcome.HOLDS, (seed, prop.name)
                refuted += 1
            proved += outcomes[prop.name] is Outcome.HOLDS
    assert proved >= 5 and refuted >= 5, "the examples say nothing"
