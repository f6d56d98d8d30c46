"""Which operation of the kernel is which action of the specification; a test walks the table in both directions."""

from __future__ import annotations

CORRESPONDS: dict[str, tuple[str, ...]] = {
    "add": ("add_request", "add_structured_request", "refuse_duplicate_request"),
    "grammar_ready": ("grammar_ready",),
    "admit": ("admit_request", "admit_holding_request"),
    "start_receive": ("start_receive",),
    "promote": ("promote_loaded_request", "retry_failed_load"),
    "resume_running": ("continue_request",),
    "preempt": ("preempt_request", "preempt_for_reset"),
    "dispatch": ("dispatch_step",),
    "receive_output": ("receive_output",),
    "close_row": ("credit_output", "credit_empty_output", "deliver_stale_output", "drop_stale_output"),
    "finish": (
        "abort_request",
        "stop_request",
        "grammar_fails",
        "fail_failed_load",
        "fail_unanswered_row",
        "close_session",
        "free_request",
    ),
    "receive_finished": (
        "receive_completes",
        "receive_completes_in_part",
        "receive_fails",
        "refuse_unmatched_report",
    ),
    "receive_failed": ("receive_fails", "receive_completes_in_part"),
    "send_finished": ("send_completes", "refuse_unmatched_report"),
    "recompute": ("report_invalid_blocks",),
    "end_turn": ("end_turn", "end_turn_while_preempted"),
    "continue_session": ("continue_session",),
    "give_up_kept_blocks": ("give_up_kept_blocks",),
    "reset": ("reset_prefix_cache", "refuse_reset"),
    "preempt_all": ("begin_forced_reset", "preempt_for_reset"),
    "forget_cache": ("complete_forced_reset",),
    "trigger_handoff": ("trigger_handoff",),
    "ship_handoff": ("ship_handoff",),
    "handoff_acknowledged": ("acknowledge_handoff", "refuse_unmatched_report"),
}
"""Method of `Kernel` (or a kernel derived from it) -> actions of the specification that it can be, by the state it finds."""
