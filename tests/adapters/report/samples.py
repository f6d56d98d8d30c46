"""Reports to render: of each outcome, of nothing, and with texts that want to be something else."""

from __future__ import annotations

from vllm_lifecycle.adapters.report.custody import Frame, Holding, Moment, Picture, RequestRow, StepRow
from vllm_lifecycle.adapters.report.evidence import Shown
from vllm_lifecycle.adapters.report.model import Report, Section
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;|`%\r\n::error::@all\x00\x1b]]>{{7*7}}"
"""An id or text that would be markup, a command, a mention or an illegal character in some form."""
CLAIM = "a_free_block_is_not_touched_by_a_transfer"
SITE = "vllm/v1/core/sched/scheduler.py:2771 _free_request_blocks"
TRACE = (
    TraceStep("add_request", (("r", "r0"),), (("status[r0]", "FREED -> WAITING"),)),
    TraceStep(
        "start_receive",
        (("r", "r0"),),
        (
            ("status[r0]", "WAITING -> WAITING_FOR_REMOTE_KVS"),
            ("free[b0]", "true -> false"),
            ("table[r0, b0]", "false -> true"),
            ("pinned[r0, RECEIVE, b0]", "false -> true"),
            ("remote[r0, RECEIVE, b0]", "false -> true"),
        ),
    ),
    TraceStep(
        "abort_request",
        (("r", "r0"),),
        (
            ("status[r0]", "WAITING_FOR_REMOTE_KVS -> FREED"),
            ("free[b0]", "false -> true"),
            ("table[r0, b0]", "true -> false"),
            ("pinned[r0, RECEIVE, b0]", "true -> false"),
        ),
    ),
)

HOLDS = Verdict(
    "a_free_block_is_in_no_table",
    Outcome.HOLDS,
    "induction/z3 4.13",
    "any number",
    numbers={"obligations": 57},
)
REFUTED = Verdict(CLAIM, Outcome.REFUTED, "explicit", "2x2", ("weak fairness of step",), "it falls", TRACE)
OPEN = Verdict(
    "the_engine_never_dies", Outcome.NOT_ESTABLISHED, "induction/z3 4.13", "any number", reason="time-out"
)
DEFECT = Verdict(
    f"abort_frees_receiving_blocks is refuted by {CLAIM}",
    Outcome.HOLDS,
    "mutation",
    "2 requests",
    trace=TRACE,
    numbers={"mutant": "abort_frees_receiving_blocks", "property": CLAIM},
)


def picture(moments: int, name: str = "r0") -> Picture:
    """A picture of so many moments with everything that can be in one."""
    statuses = ("WAITING", "WAITING_FOR_REMOTE_KVS", "RUNNING", "PREEMPTED", "FINISHED_ABORTED")
    seen = []
    for n in range(moments):
        held = [Holding("table", name, frozenset({"1", "2"}))] if n % 7 else []
        held += [Holding("receive", name, frozenset({"1"}))] if n % 5 in (1, 2) else []
        held += [Holding("step", str(n // 3), frozenset({"2"}))] if n % 3 else []
        taken = frozenset().union(*(h.blocks for h in held))
        free = tuple(b for b in ("1", "2", "3", "4", "5", "6") if b not in taken and b != "6")
        frame = Frame(
            (
                RequestRow(name, statuses[n // 2 % 5], ("in running", "4 of 6 tokens computed")),
                RequestRow("r1", "WAITING"),
            ),
            (StepRow(f"step {n // 3}", "3 tokens"),),
            ("1", "2", "3", "4", "5", "6"),
            (*free, "1") if n == moments - 1 else free,
            frozenset({"3"}),
            tuple(held),
        )
        breach = "one report for each transfer" if n == moments // 2 and moments > 1 else ""
        seen.append(Moment(f"call_{n + 1}({name})", (f"{name}: RUNNING",) if n % 2 else (), frame, breach))
    return Picture(tuple(seen), frozenset({"1", name}))


def finding(moments: int = 4, name: str = "r0", text: str = "It fell.", site: str = SITE) -> Shown:
    """A finding of the explorer."""
    shown = picture(moments, name)
    return Shown(
        CLAIM,
        Outcome.REFUTED,
        "explorer",
        "loads",
        reason=f"{text} at {site}; fault: scheduler",
        trace=tuple(TraceStep(m.call, (), tuple((c, "") for c in m.changes)) for m in shown.moments),
        numbers={"length": moments, "fault": "scheduler", "site": site, "vllm": "0.32.0"},
        picture=shown,
        test=f"def test_it() -> None:\n    play({name!r})\n",
        message=text,
        known_as=("vllm:Scheduler", CLAIM, site.partition(":")[0], site.partition(" ")[2], "Answer"),
    )


def report(*verdicts: Verdict, command: str = "check") -> Report:
    """One section with these verdicts."""
    return Report(command, [Section("part", list(verdicts), 1.5)], 1234.5678)


SAMPLES = {
    "holds": report(HOLDS, DEFECT),
    "refuted": report(HOLDS, REFUTED, command="explore"),
    "not established": report(HOLDS, OPEN, command="prove"),
    "a finding": report(finding(), OPEN, command="check vllm"),
    "nasty": report(finding(3, NASTY, NASTY), command=f"check {NASTY}"),
    "an empty section": report(),
    "nothing": Report("explore"),
}
