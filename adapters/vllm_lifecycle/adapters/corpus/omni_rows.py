"""Known defects of vllm-omni 0.16.0's AR scheduler."""

from __future__ import annotations

from .recognise import after, at, claim, dies, every, has, in_scope, loads, of_kind, some
from .rows import Cell, Row

OMNI = "omni 0.16.0"
RUN: dict[str, Cell] = {OMNI: "misbehaves"}
READ: dict[str, Cell] = {OMNI: "read"}
TOUCHED = claim("a_free_block_is_not_touched_by_a_transfer")
HANDOFF = every(TOUCHED, of_kind("HANDOFF"))
_TRANSPORT = "beyond the scheduler: it happens in the worker or in the transport"

ROWS: tuple[Row, ...] = (
    Row(
        "A1",
        "the acknowledgement is lost with a step without tokens",
        RUN,
        every(
            claim("a_block_that_is_not_free_has_a_holder", "a_finished_request_is_eventually_freed"),
            in_scope(handoff=True, late_acknowledgements=False),
        ),
    ),
    Row("A2", "an abort frees what is about to be shipped", RUN, every(HANDOFF, after("Abort"))),
    Row("A4", "a preemption frees what is handed off", RUN, every(HANDOFF, at("_preempt_request"))),
    Row(
        "A5",
        "a request that never ran is handed off",
        RUN,
        every(claim("a_handoff_names_some_block"), after("Abort")),
    ),
    Row(
        "A7",
        "the once-mark outlives its request",
        RUN,
        every(claim("a_trigger_mark_belongs_to_a_live_request"), after("Abort")),
    ),
    Row(
        "A9",
        "an id is used again while its last owner is held",
        RUN,
        every(dies("add_request"), in_scope(handoff=True)),
    ),
    Row(
        "A10",
        "an abort during a load: blocks are freed under the remote writer",
        RUN,
        every(
            some(every(TOUCHED, of_kind("RECEIVE")), dies("_update_from_kv_xfer_finished")),
            in_scope(handoff=True),
            loads,
            has("Abort"),
        ),
    ),
    Row(
        "A12",
        "the connector's report frees what is handed off, or the acknowledgement what it sends",
        RUN,
        every(
            some(every(TOUCHED, of_kind("SEND")), every(HANDOFF, after("Answer"))),
            in_scope(handoff=True),
            has("Add", hold=True),
        ),
    ),
    Row(
        "A13",
        "hand-off parameters replace the connector's",
        RUN,
        every(claim("the_output_carries_the_parameters_of_every_transfer"), in_scope(handoff=True)),
    ),
    Row(
        "A15",
        "an exception swallowed in schedule() postpones the shipment",
        RUN,
        None,
        "no input that the contract allows raises there; an exception would have to be planted",
    ),
    Row("A17", "failed sends are acknowledged", READ, None, _TRANSPORT),
    Row("A18", "one rank acknowledges for all", READ, None, _TRANSPORT),
    Row(
        "A19",
        "only KV group 0 is shipped",
        READ,
        every(claim("a_request_handed_off_at_its_end_ships_all_its_blocks"), in_scope(groups=2)),
    ),
    Row(
        "A20",
        "the snapshot is one token short of the sentinel",
        RUN,
        claim("a_snapshot_at_a_token_holds_that_token"),
    ),
    Row(
        "A22",
        "an aborted request parked for a chunk stays in the running list",
        RUN,
        every(
            claim(
                "a_slot_in_use_has_a_request",
                "a_finished_request_is_in_no_queue",
                "a_request_in_the_running_list_runs",
            ),
            after("Abort"),
            in_scope(chunks=True),
        ),
    ),
    Row(
        "A23",
        "more ready chunks than slots: a running request waits",
        RUN,
        some(
            every(
                claim("a_running_request_is_in_the_running_list", "a_request_is_in_one_queue_only"),
                in_scope(chunks=True),
            ),
            every(dies("schedule"), in_scope(chunks=True)),
        ),
    ),
    Row(
        "A26",
        "an abort leaves the poll entry",
        RUN,
        every(claim("only_a_live_request_is_polled_for_or_has_a_chunk"), after("Abort")),
    ),
    Row(
        "A28",
        "a poll in flight comes back after the clean-up",
        RUN,
        every(
            claim("only_a_live_request_is_polled_for_or_has_a_chunk"),
            after("Answer"),
            has("Report", kind="block failed"),
        ),
    ),
    Row(
        "A30",
        "a chunk whose send failed is dropped silently",
        RUN,
        claim("a_chunk_that_is_not_taken_is_sent_again"),
    ),
    Row("A32", "no deadline for a chunk", READ, None, "a fair former stage sends every chunk"),
    Row("A33", "an abort upstream sends no last chunk", READ, None, "a fair former stage sends every chunk"),
    Row("A34", "the sending thread reads a live request", READ, None, _TRANSPORT),
    Row("A36", "unread shared memory is never unlinked", READ, None, _TRANSPORT),
    Row(
        "A37",
        "chunk waiters go to the tail",
        READ,
        every(claim("requests_that_stay_waiting_keep_their_order"), in_scope(chunks=True)),
    ),
)
