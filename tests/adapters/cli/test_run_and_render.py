"""Reports: outcome and exit code, interruption, text and JSON."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator

import pytest
import typer

from vllm_lifecycle.adapters.cli import render
from vllm_lifecycle.adapters.cli.run import Format, carry_out, finish
from vllm_lifecycle.adapters.report.model import Progress, Report, Section, Stage
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

GOOD = Verdict(
    "a_is_b", Outcome.HOLDS, "explicit", "2x2", ("weak fairness of step",), numbers={"states": 1234}
)
TRACE = (TraceStep("add_request", (("r", "r0"),), (("status[r0]", "WAITING"),)), TraceStep("schedule", ()))
BAD = Verdict("c_is_d", Outcome.REFUTED, "explicit", "2x2", trace=TRACE)
OPEN = Verdict("e_is_f", Outcome.NOT_ESTABLISHED, "induction", "any size", reason="unknown: time-out")


def stage(*verdicts: Verdict, title: str = "part") -> Stage:
    return Stage(title, lambda _: verdicts)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [((GOOD,), 0), ((GOOD, BAD, OPEN), 2), ((GOOD, OPEN), 3), ((), 3)],
    ids=["good", "bad", "open", "none"],
)
def test_the_exit_code_is_that_of_the_worst_verdict(verdicts: tuple[Verdict, ...], code: int) -> None:
    assert carry_out("check", [stage(*verdicts)]).exit_code == code


def test_one_empty_section_makes_the_whole_not_established() -> None:
    assert carry_out("check", [stage(GOOD), stage()]).outcome is Outcome.NOT_ESTABLISHED


def test_ctrl_c_keeps_what_was_established_and_skips_the_rest() -> None:
    def interrupted(_: Progress) -> Iterator[Verdict]:
        yield GOOD
        os.kill(os.getpid(), signal.SIGINT)
        yield BAD

    report = carry_out("check", [Stage("first", interrupted), stage(BAD, title="never run")])
    [section] = report.sections
    assert [v.claim for v in section.verdicts] == ["a_is_b", "first"]
    assert "interrupted" in section.verdicts[-1].reason
    assert report.exit_code == 3


def test_an_engine_that_swallows_ctrl_c_does_not_make_the_report_whole() -> None:
    def swallowing(_: Progress) -> Iterable[Verdict]:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            return [GOOD]
        return []

    report = carry_out("check", [Stage("first", swallowing), stage(GOOD)])
    assert (len(report.sections), report.exit_code) == (1, 3)


def test_ctrl_c_after_a_refutation_is_still_refuted() -> None:
    def refuting(_: Progress) -> Iterator[Verdict]:
        yield BAD
        raise KeyboardInterrupt

    assert carry_out("check", [Stage("first", refuting)]).exit_code == 2


def test_text_shows_failures_with_their_reason_and_trace_and_each_assumption_once() -> None:
    report = Report("check", [Section("part", [GOOD, BAD, OPEN], 1.5), Section("other", [GOOD], 0.5)], 2.0)
    assert render.to_text(report, details=False, colour=False) == (
        "outcome  checked  claims                                 extent        time\n"
        "refuted  part     1 refuted, 1 not established, 1 holds  1,234 states  1.5 s\n"
        "holds    other    1 holds                                1,234 states  0.5 s\n"
        "\n"
        "refuted: c_is_d  [explicit, 2x2]\n"
        "    1. add_request(r=r0)\n"
        "         status[r0]: WAITING\n"
        "    2. schedule\n"
        "\n"
        "not established: e_is_f  [induction, any size]\n"
        "  unknown: time-out\n"
        "\n"
        "assumptions:\n"
        "  part, other:\n"
        "    weak fairness of step\n"
        "\n"
        "check: refuted (2.0 s)"
    )


def test_details_give_each_claim_a_row_and_colour_only_paints_the_outcome() -> None:
    report = Report("check", [Section("part", [GOOD, BAD])])
    plain = render.to_text(report, details=True, colour=False).splitlines()
    assert plain[1].split() == ["holds", "a_is_b", "2x2", "1,234", "states"]
    painted = render.to_text(report, details=True, colour=True).splitlines()
    assert painted[2] == plain[2].replace("refuted", "\033[31mrefuted\033[0m", 1)


def test_long_evidence_and_what_a_proof_used_are_shown_below_the_claim() -> None:
    cti = Verdict(
        "p",
        Outcome.NOT_ESTABLISHED,
        "z3",
        "any",
        reason="not inductive",
        numbers={"counterexample": "one\ntwo"},
    )
    used = Verdict("q", Outcome.HOLDS, "z3", "any", numbers={"uses": {"admit": ["p", "q"]}})
    text = render.to_text(Report("prove", [Section("proof", [cti, used])]), details=False, colour=False)
    assert "  not inductive\n  counterexample:\n    one\n    two" in text
    assert "q uses\n  admit: p, q" in text


def test_failures_that_say_the_same_share_one_block() -> None:
    again = Verdict("g_is_h", OPEN.outcome, OPEN.engine, OPEN.scope, reason=OPEN.reason)
    text = render.to_text(Report("prove", [Section("proof", [OPEN, BAD, again])]), details=False)
    assert (
        "not established: 2 claims  [induction, any size]\n  unknown: time-out\n    e_is_f\n    g_is_h"
        in text
    )


def test_traces_of_claims_that_hold_are_shown_on_request() -> None:
    found = Verdict("can_reach_it", Outcome.HOLDS, "explicit", "2x2", trace=TRACE, numbers={"score": "a\nb"})
    report = Report("explore", [Section("part", [found])])
    assert "add_request" not in render.to_text(report, details=True)
    assert "holds: can_reach_it  [explicit, 2x2]\n  score:" in render.to_text(
        report, details=False, traces=True
    )


def test_json_leaves_nothing_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as left:
        finish("explore", [stage(GOOD, BAD)], Format.json, details=False)
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (left.value.exit_code, data["exit_code"], data["outcome"], data["command"]) == (
        2,
        2,
        "refuted",
        "explore",
    )
    good, bad = data["sections"][0]["verdicts"]
    assert good["numbers"] == {"states": 1234}
    assert good["assumptions"] == ["weak fairness of step"]
    assert bad["trace"][0] == {
        "action": "add_request",
        "params": {"r": "r0"},
        "changes": {"status[r0]": "WAITING"},
    }
    assert err.splitlines() == ["part ...", f"part: refuted, {data['sections'][0]['seconds']:.1f} s"]
