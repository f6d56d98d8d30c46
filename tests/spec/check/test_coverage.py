"""Several scopes together: vacuous truth does not count, a refutation anywhere does, a gap is named."""

from __future__ import annotations

from vllm_lifecycle.spec.check.coverage import (
    FOUND_IN_PROJECTION,
    HOLDS_IN_PROJECTION,
    IN_PROJECTION,
    Run,
    across,
    judged,
    telling,
)
from vllm_lifecycle.spec.check.verdict import VACUOUS, Outcome, Verdict
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

CLAIM = "a_free_block_is_in_no_table"
CASE = f"can_reach_the_case_of_{CLAIM}"


def verdict(claim: str, outcome: Outcome, reason: str = "", complete: bool = True) -> Verdict:
    return Verdict(claim, outcome, "explicit", "1x1", reason=reason, numbers={"complete": complete})


HELD, FOUND = verdict(CLAIM, Outcome.HOLDS), verdict(CASE, Outcome.HOLDS)
MISSED = verdict(CASE, Outcome.NOT_ESTABLISHED, "no reachable state is an example")
FELL = verdict(CLAIM, Outcome.REFUTED)
CUT = verdict(CLAIM, Outcome.NOT_ESTABLISHED, "100 states reached", complete=False)


def outcome_of(claim: str, *runs: Run) -> Outcome:
    seen = [Run(r.scope, tuple(judged(SYSTEM, r.verdicts))) for r in runs]
    return next(v.outcome for v in across(SYSTEM, seen) if v.claim == claim)


def test_a_property_whose_case_was_not_found_is_not_established() -> None:
    [held, _] = judged(SYSTEM, [HELD, MISSED])
    assert (held.outcome, held.reason) == (Outcome.NOT_ESTABLISHED, VACUOUS)
    assert list(judged(SYSTEM, [HELD, FOUND])) == [HELD, FOUND]


def test_a_run_is_silent_on_what_does_not_occur_in_it_but_not_on_what_was_cut_off() -> None:
    assert list(telling(SYSTEM, list(judged(SYSTEM, [HELD, MISSED])))) == []
    assert list(telling(SYSTEM, [CUT, FOUND])) == [CUT, FOUND]
    missed_in_time = verdict(CASE, Outcome.NOT_ESTABLISHED, "100 states reached", complete=False)
    assert list(telling(SYSTEM, [CUT, missed_in_time])) == [CUT, missed_in_time]


def test_one_telling_scope_is_enough_and_one_refutation_too() -> None:
    vacuous, telling_run = Run("small", (HELD, MISSED)), Run("large", (HELD, FOUND))
    assert outcome_of(CLAIM, vacuous) is Outcome.NOT_ESTABLISHED
    assert outcome_of(CLAIM, vacuous, telling_run) is Outcome.HOLDS
    assert outcome_of(CLAIM, telling_run, Run("other", (FELL, FOUND))) is Outcome.REFUTED


def test_every_property_and_witness_is_answered_for() -> None:
    verdicts = list(across(SYSTEM, [Run("large", (HELD, FOUND))]))
    assert {v.claim for v in verdicts} == {p.name for p in SYSTEM.properties} | {
        w.name for w in SYSTEM.witnesses
    }
    gap = next(v for v in verdicts if v.claim == "a_final_status_is_final")
    assert "no scope" in gap.reason


def test_what_a_projection_cannot_say_is_not_established() -> None:
    part = SYSTEM.project(SYSTEM.closure(("custody",)))
    assert part.dropped_guards
    other = "a_block_that_is_not_free_has_a_holder"
    progress = "a_transfer_is_eventually_over"
    seen = [HELD, FOUND, verdict(other, Outcome.REFUTED), verdict(progress, Outcome.HOLDS)]
    seen.append(verdict(f"can_reach_the_case_of_{progress}", Outcome.HOLDS))
    answers = {v.claim: (v.outcome, v.reason) for v in judged(part, seen)}
    assert answers[CLAIM] == (Outcome.HOLDS, "")
    assert answers[CASE] == (Outcome.NOT_ESTABLISHED, FOUND_IN_PROJECTION)
    assert answers[other] == (Outcome.NOT_ESTABLISHED, IN_PROJECTION)
    assert answers[progress] == (Outcome.NOT_ESTABLISHED, HOLDS_IN_PROJECTION)
    assert [v.claim for v in telling(part, list(judged(part, seen)))] == [CLAIM, other]


def test_progress_that_was_not_asked_is_no_gap() -> None:
    claims = {v.claim for v in across(SYSTEM, [], progress=False)}
    assert not claims & {p.name for p in SYSTEM.properties if p.kind == "progress"}
