"""Progress on random specifications with random fairness: the liveness engine agrees with the definition, in plain Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agreement.lassos import Judge, with_fairness
from tests.agreement.naive import search
from tests.agreement.specs import example

from vllm_lifecycle.spec.check.liveness import check_progress
from vllm_lifecycle.spec.check.verdict import Outcome

IN_A_TEST = 40


@pytest.mark.parametrize("first", range(0, 120, IN_A_TEST))
def test_progress_is_refuted_exactly_when_a_fair_run_owes_for_ever(first: int) -> None:
    judged = refuted = 0
    for seed in range(first, first + IN_A_TEST):
        this = example(seed)
        naive = search(this.machine, this.domain, max_states=100)
        if not naive.complete:
            continue
        machine = with_fairness(this.machine, seed)
        judge = Judge(machine, this.domain, naive)
        for prop in this.machine.properties:
            if prop.kind != "state":
                continue
            there = replace(prop, kind="progress")
            back = replace(there, antecedent=prop.consequent, consequent=prop.antecedent)
            for claim in (there, back):
                (verdict,) = check_progress(machine, this.domain, [claim])
                assert (verdict.outcome is Outcome.REFUTED) == judge.refutes(claim), (seed, prop.name)
                judged += 1
                refuted += verdict.outcome is Outcome.REFUTED
    assert judged >= 40 and refuted >= 10
