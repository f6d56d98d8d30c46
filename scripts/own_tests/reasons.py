"""Why a test of vLLM's fails with the verified scheduler: each needs a reason, or the run fails.

A reason names what the test reads or asks for that the verified scheduler does not have on purpose, with the property or the
defect that is behind it.  Patterns are those of `fnmatch` on the test's name after the file's folder.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

REASONS: dict[tuple[str, str], str] = {
    ("0.13.0", "test_scheduler.py::test_stop_via_update_from_output"): (
        "puts requests and a step's output in by hand: the answer of a step that was never scheduled is refused (P10)"
    ),
    ("0.13.0", "test_scheduler.py::test_preempt_during_execution"): (
        "preempts a request whose step is in flight: its blocks stay held until the answer, so it gives nothing (VLLM-45357)"
    ),
    ("0.13.0", "test_scheduler.py::test_priority_scheduling_preemption"): (
        "adds the id 0 again while its owner runs: refused (VLLM-15041)"
    ),
    ("0.13.0", "test_scheduler.py::test_priority_scheduling_no_preemption_when_space_available"): (
        "adds the id 0 again while its owner runs: refused (VLLM-15041)"
    ),
    ("0.13.0", "test_async_recompute_blocks_not_cached_when_invalid"): (
        "counts calls of the manager's cache_blocks, which is a view of the store here and is not called"
    ),
    ("0.13.0", "test_sync_load_failure_with_shared_blocks*"): (
        "a request that shares a failed block computes it again too, for the other may be preempted before it does (P7)"
    ),
    ("0.13.0", "test_cannot_schedule_after_recv"): (
        "admits a load whose next block nothing is set aside for: here it waits until there is one (VLLM-45388)"
    ),
}
"""(release or *, pattern of the test's name) -> reason."""


def reason_for(release: str, test: str) -> str:
    """The reason; empty when there is none."""
    for (of_release, pattern), reason in REASONS.items():
        if of_release in ("*", release) and fnmatchcase(test, f"*{pattern}"):
            return reason
    return ""
