"""`python -m tests.differential`: hold a scheduler class against vLLM's own, group by group.

Exit codes: 0 nothing unexplained, 1 usage, 2 an unexplained difference (shown as a short list of events, and saved).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

from tests.differential.features import mends, record, refused
from tests.differential.groups import AHEAD, GROUPS
from tests.differential.run import STOCK, Classes, Failure, Report, load, play, run_group, save

from vllm_lifecycle.adapters.vllm.config import Unusable, vllm_version

OURS = "vllm_lifecycle.adapters.vllm.verified:VerifiedScheduler"
OURS_ASYNC = "vllm_lifecycle.adapters.vllm.verified:VerifiedAsyncScheduler"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.differential", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps of each group (default 1000)")
    parser.add_argument("--group", action="append", choices=[*GROUPS], help="one or more; default: all")
    parser.add_argument("--skip", action="append", choices=[*GROUPS], default=[], help="groups to leave out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, default=0, help="the number of the first case")
    parser.add_argument("--scheduler", default=OURS, metavar="pkg.mod:Class")
    parser.add_argument(
        "--async-scheduler", default="", metavar="pkg.mod:Class", help="for asynchronous setups"
    )
    parser.add_argument(
        "--plain", action="store_true", help="compare with vLLM's own as it is, no defect mended"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="replay a saved case")
    parser.add_argument("--save", type=Path, default=Path("differential-failure.json"), metavar="FILE")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write what the run came to, for the feature table"
    )
    parser.add_argument(
        "--ahead-steps",
        type=int,
        metavar="N",
        help="steps of the groups that end in -ahead (default: as --steps)",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on with the next group after a failure")
    return parser.parse_args()


def _line(report: Report, seconds: float) -> str:
    unexplained = int(report.failure is not None)
    rows = "; ".join(f"{name} x{count}" for name, count in report.rows.most_common())
    ended = "; ".join(f"{name} x{count}" for name, count in report.ended.most_common())
    mended = "; ".join(f"{name} x{count}" for name, count in report.mended.most_common())
    told = [
        f"intended: {rows}" if rows else "",
        f"ended: {ended}" if ended else "",
        f"mended: {mended}" if mended else "",
    ]
    return (
        f"{report.group:20} {report.steps:7} steps {report.cases:5} cases   unexplained {unexplained}"
        f"   {seconds:5.1f} s   {'   '.join(filter(None, told))}"
    ).rstrip()


def main() -> int:
    """Run the groups, or replay a case; the exit code."""
    options = _arguments()
    ours_async = options.async_scheduler or (OURS_ASYNC if options.scheduler == OURS else "")
    if options.scheduler == STOCK:
        ours_async = ours_async or "vllm.v1.core.sched.async_scheduler:AsyncScheduler"
    plain = options.plain or options.scheduler == STOCK
    classes = Classes.named(options.scheduler, ours_async, plain)
    if options.replay:
        case = load(options.replay)
        pair = play(classes, case.setup, case.events)
        if not pair.divergence:
            print(f"no difference in {pair.steps} steps{'; ' + pair.ended if pair.ended else ''}")
            return 0
        print(Failure("replay", 0, 0, case, pair.steps, pair))
        return 2
    print(f"{options.scheduler} against {STOCK}, vLLM {vllm_version()}")
    failures = 0
    reports = []
    for group in options.group or [g for g in GROUPS if g not in options.skip]:
        start = time.perf_counter()
        ahead = options.ahead_steps if group.endswith(AHEAD) else None
        report = run_group(classes, group, ahead or options.steps, options.seed, options.case)
        reports.append(report)
        print(_line(report, time.perf_counter() - start), flush=True)
        if report.failure:
            failures += 1
            print(report.failure)
            save(report.failure.case, options.save)
            print(f"  saved; again: python -m tests.differential --replay {options.save}")
            if not options.keep_going:
                break
    if options.record:
        record(
            options.record,
            vllm_version(),
            options.scheduler,
            reports,
            refused(classes.ours),
            mends(classes.reference),
        )
    return 2 if failures else 0


def _with_fixed_hashes() -> None:
    """Start again with a fixed hash seed: vLLM walks sets of ids, so that cases repeat only with their order."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.differential", *sys.argv[1:]])


if __name__ == "__main__":
    _with_fixed_hashes()
    logging.disable(logging.CRITICAL)
    try:
        sys.exit(main())
    except Unusable as why:
        print(f"error: {why}", file=sys.stderr)
        sys.exit(1)
