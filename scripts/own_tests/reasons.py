"""Why a test of vLLM's fails with the verified scheduler: each needs a reason, or the run fails.

A reason names what the test reads or asks for that the verified scheduler does not have on purpose, with the property or the
defect that is behind it.  Patterns are those of `fnmatch` on the end of the test's name, in which [ stands for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Reason:
    """One reason, the releases on which it is one, and the tests that fail for it."""

    why: str
    releases: tuple[str, ...]
    tests: tuple[str, ...]

    def covers(self, release: str, test: str) -> bool:
        """The test fails for this reason on the release."""
        return release in self.releases and any(
            fnmatchcase(test, "*" + pattern.replace("[", "[[]")) for pattern in self.tests
        )


OLD, NEW = ("0.13.0",), ("0.32.0",)
BOTH = OLD + NEW

REASONS = (
    Reason(
        "the defect is what it asks for: adds the id 0 again while its owner runs, which is refused (VLLM-15041)",
        OLD,
        (
            "test_priority_scheduling_preemption",
            "test_priority_scheduling_no_preemption_when_space_available",
        ),
    ),
    Reason(
        "the defect is what it asks for: a request gives way while its step is in flight and its blocks are "
        "handed on at once; here the step holds them until its answer (VLLM-45357)",
        BOTH,
        ("test_preempt_during_execution", "test_kv_pressure_preempt_mid_handoff[*-False]"),
    ),
    Reason(
        "the defect is what it asks for: admits a load whose next block nothing is set aside for; here it waits "
        "until there is one (VLLM-45388)",
        BOTH,
        ("test_cannot_schedule_after_recv", "test_kv_connector_handles_preemption[*-True-*]"),
    ),
    Reason(
        "a request that shares a block whose load failed computes it again too, for the other may give way before"
        " it does (P7)",
        OLD,
        ("test_sync_load_failure_with_shared_blocks*",),
    ),
    Reason(
        "blocks that leave a window stay held until all steps are answered that were sent before (P1), and are "
        "held so always, not by a switch",
        NEW,
        (
            "test_swa_free_waits_for_in_flight_step",
            "test_chunked_local_free_waits_for_in_flight_step",
            "test_gate_disabled_without_connector",
        ),
    ),
    Reason(
        "puts a spy or another method in the place of a method of vLLM's manager (cache_blocks, allocate_slots, "
        "get_new_blocks), which is a view of the block store here: the kernel does not call it",
        BOTH,
        (
            "test_async_recompute_blocks_not_cached_when_invalid",
            "test_kv_connector_records_external_cache_hit_sources[*",
            "test_prefix_cache_stats_counted_once_for_retried_then_scheduled_request",
            "test_allocation_retry_waits_for_fence_then_succeeds[*",
            "test_cow_retentions_deferred_until_copy_step_processed",
        ),
    ),
    Reason(
        "counts calls of _preempt_request or reads _connector_finished, last_sched_seq: steps of vLLM's own code "
        "between two states, which here are one operation of the kernel",
        NEW,
        (
            "test_kv_pressure_preemption_with_inflight_output[*",
            "test_reset_prefix_cache_with_inflight_output_under_kv_pressure[*",
            "test_connector_finish_frees_on_settled_basis",
            "test_non_async_abort_defers_via_last_sched_seq",
        ),
    ),
    Reason(
        "calls a private method as a function, with a stand-in for the scheduler (_get_local_prefix_cache_hit, "
        "_free_cow_retained_blocks): the look-up is the block store's, and what a step copies is held by it",
        NEW,
        (
            "test_capable_connector_uses_divergent_partial_hit_lookup",
            "test_connector_without_divergent_hit_support_uses_common_lookup",
            "test_connector_completes_partial_prefix_without_importing_missing_host_kv[*",
            "test_free_cow_retained_blocks_defers_until_copy_step_processed",
        ),
    ),
    Reason(
        "calls a private method that makes a part of the output (_make_cached_request_data, "
        "_make_scheduled_encoder_input_stats): the output is made of a plan of the kernel here",
        NEW,
        (
            "test_cached_request_data_resumed_all_token_ids_mrv1_only",
            "test_make_scheduled_encoder_input_stats_output_embeddings",
            "test_scheduled_encoder_input_stats_disabled_*",
        ),
    ),
    Reason(
        "makes a scheduler without its constructor (object.__new__) and fills in vLLM's attributes: there is no "
        "kernel in it",
        NEW,
        (
            "test_abort_request_when_structured_output_fsm_cannot_advance",
            "test_connector_finish_registers_partial_tail_before_cleanup",
            "test_failed_load_rezeroes_unwritten_skipped_blocks",
        ),
    ),
    Reason(
        "has a Mock as the model's configuration, in which every feature is asked for, so that those which "
        "are refused are too; then calls a private method (_free_request)",
        NEW,
        ("test_ec_transfer_params.py::test_free_request_*",),
    ),
    Reason(
        "sets an attribute of the finished scheduler that turns it into one for another model "
        "(is_encoder_decoder, use_eagle, need_mamba_block_aligned_split): here the configuration says that, at "
        "the start",
        NEW,
        (
            "test_variable_length_cross_attn_block_allocation",
            "test_cross_attn_blocks_not_over_allocated",
            "test_cross_attn_blocks_not_under_allocated",
            "test_free_encoder_inputs_defers_for_eagle_lookahead",
            "test_mamba_align_encoder_cache_cap_makes_progress",
            "test_mamba_align_eagle_schedules_encoder_at_boundary",
        ),
    ),
    Reason(
        "sets a state or a count by hand that nothing stands behind (a load or a send that was never begun, "
        "computed tokens of a new request): the kernel enters such a state only with the transfer or the blocks "
        "that it means (P10)",
        NEW,
        (
            "test_remote_kv_promotion_drains_before_grammar_prefix",
            "test_fcfs_mixed_blocked_types_remote_load_drains_first",
            "test_abort_request_waiting_for_remote_kvs",
            "test_delayed_kv_connector_free_keeps_scheduler_active",
            "test_no_spec_decode_padding_up_to_max_model_len",
        ),
    ),
    Reason(
        "an answer with more tokens for a request than its drafts allow: what is over is dropped and counted "
        "against the worker (P10)",
        NEW,
        ("test_update_from_output_routes_multi_position_sampling_masks",),
    ),
    Reason(
        "expects vLLM's wording in the log, or that a request that fails keeps the encoder inputs which it found "
        "until the next answer; here it lets them go at once",
        NEW,
        (
            "test_encoder_cache_rejects_mismatched_embed_count",
            "test_encoder_cache_embed_count_mismatch_restores_prior_hit_state",
        ),
    ),
    Reason(
        "refused at the start: diffusion models",
        NEW,
        ("test_diffusion_*", "test_sync_diffusion_*", "test_spec_decode_padding_skipped_for_diffusion"),
    ),
    Reason(
        "refused at the start: Mamba layers",
        NEW,
        (
            "test_mamba_align_chunk_split.py::*",
            "test_mamba_eagle_resume_checkpoint.py::*",
            "test_mamba_align_split_*",
            "test_dcp_fine_hit_retention_uses_hash_alignment[*",
            "test_hybrid_cache_mamba_align_shared_prefix_detection",
            "test_spec_decode_padding_dropped_when_recurrent_alignment_clips[*",
            "test_hybrid_per_group_hit_divergence_with_connector[*",
            "test_hybrid_fa_deeper_hit_respects_connector_lookup_policy[*",
        ),
    ),
    Reason(
        "refused at the start: sliding windows that are computed again after a hit (prefix replay)",
        NEW,
        ("test_prefix_replay.py::*",),
    ),
    Reason(
        "refused at the start: a server that only runs the encoder",
        NEW,
        (
            "test_encoder_instance_*",
            "test_encoder_only_prompt_longer_than_budget_is_chunked",
            "test_encoder_input_skipped_when_connector_already_has_the_item[ec_producer]",
        ),
    ),
    Reason(
        "refused at the start: asynchronous scheduling over several pipeline stages",
        NEW,
        ("test_async_scheduling_pp_allows_rescheduling_with_output_placeholders",),
    ),
    Reason(
        "refused with an error, request by request: streaming input sessions",
        NEW,
        (
            "test_scheduler_streaming.py::*",
            "test_pause_new_ignores_streaming_session_waiting_for_input",
            "test_resumable_request_handoff",
            "test_streaming_pause_does_not_over_admit_worker_slot",
        ),
    ),
    Reason(
        "refused at the start: prefills that keep step with other data-parallel ranks (throttle_prefills)",
        NEW,
        ("test_schedule_prefills_gating[True]", "test_throttle_*"),
    ),
    Reason(
        "refused at the start: outputs beside the tokens (aux_output_connector), and HiSparse attention",
        NEW,
        (
            "test_finish_request",
            "test_routed_experts_prompt_start_at_prompt_end[*",
            "test_preemption_processes_stale_aux_output",
            "test_scheduler_reset_prefix_cache",
            "test_aux_output_reset_follows_kv_reset_result[*",
            "test_pending_hisparse_reclamation_defers_preemption",
            "test_hisparse_*",
            "test_nixl_hisparse_full_block_import_keeps_a_writable_tail[*",
        ),
    ),
    Reason(
        "refused at the start: a number of drafts that depends on the batch size",
        NEW,
        ("test_dynamic_sd.py::test_scheduler_*",),
    ),
)
"""All reasons; the first that covers a test is its reason."""


def reason_for(release: str, test: str) -> str:
    """The reason; empty when there is none."""
    return next((reason.why for reason in REASONS if reason.covers(release, test)), "")
