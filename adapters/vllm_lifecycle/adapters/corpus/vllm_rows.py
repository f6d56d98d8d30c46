"""Public defects of vLLM's scheduler; row names are issue or pull request numbers of vllm-project/vllm."""

from __future__ import annotations

from .recognise import Found, after, blames, claim, dies, every, has, in_scope, loads, no, of_kind, some
from .rows import Cell, Row

RELEASES = ("0.13.0", "0.16.0", "0.32.0")
TOUCHED = claim("a_free_block_is_not_touched_by_a_transfer")
FAILURE = some(has("Report", kind="receive failed"), has("Report", kind="block failed"))
STUCK = claim("something_that_fits_is_eventually_scheduled")
_LETTERS: dict[str, Cell] = {"B": "misbehaves", "p": "policy", "-": "healthy", "/": "absent"}


def _cells(text: str) -> dict[str, Cell]:
    """One letter per release: B misbehaves, p policy, - healthy, / absent."""
    return {release: _LETTERS[letter] for release, letter in zip(RELEASES, text, strict=True)}


def _sends_and_loads(f: Found) -> bool:
    return loads(f) and has("Add", hold=True)(f)


ROWS: tuple[Row, ...] = (
    Row(
        "46240",
        "receive and send of an aborted request: the first report frees all, the second kills the engine",
        _cells("BBB"),
        some(
            every(TOUCHED, after("Answer"), _sends_and_loads),
            every(dies("_update_from_kv_xfer_finished"), blames("scheduler"), _sends_and_loads),
        ),
    ),
    Row(
        "32255",
        "an abort during a load frees its destination at once",
        _cells("B--"),
        every(TOUCHED, after("Abort"), of_kind("RECEIVE")),
    ),
    Row(
        "43226",
        "a report for a request that is not tracked kills the engine",
        _cells("BBB"),
        every(dies("_update_from_kv_xfer_finished"), blames("connector")),
    ),
    Row(
        "26929",
        "a send is reported before its request finished",
        _cells("BBB"),
        every(dies("_free_blocks"), blames("connector")),
    ),
    Row(
        "45357",
        "blocks are freed at a stop while a dispatched step writes them",
        _cells("BB-"),
        every(claim("a_free_block_is_not_touched_by_a_step"), after("Answer")),
    ),
    Row(
        "49674",
        "deferred frees: a preemption gains nothing, everybody is preempted",
        _cells("//-"),
        claim("a_fruitless_preemption_is_not_repeated"),
    ),
    Row(
        "42571",
        "one block twice in a free call",
        _cells("BB-"),
        claim("a_free_block_is_in_the_free_list_once", "a_held_block_is_not_in_the_free_list"),
        why_not="no call of the API makes a table hold a block twice; the report has several connectors",
    ),
    Row(
        "33377",
        "a finished, held request is processed again by an output in flight",
        _cells("B--"),
        claim("a_request_finishes_once", "a_final_status_is_final"),
    ),
    Row(
        "31583",
        "a preempted request that loads on resume is announced as new",
        _cells("B--"),
        every(claim("a_request_is_announced_as_new_once"), loads),
    ),
    Row(
        "30320",
        "the connector claims every token of the prompt",
        _cells("BBB"),
        every(dies("schedule"), blames("connector")),
    ),
    Row(
        "45474",
        "a load failure by block with two KV groups kills the engine",
        _cells("BBB"),
        every(dies("_update_requests_with_invalid_blocks", "_handle_invalid_blocks"), in_scope(groups=2)),
    ),
    Row(
        "29877",
        "loads are not bounded by max_num_seqs",
        _cells("BBB"),
        claim("running_and_loading_requests_fit_the_slots"),
    ),
    Row(
        "45388",
        "two loads fill the pool and neither gets its last block",
        _cells("BB-"),
        every(STUCK, of_kind("held by 2 loaded"), in_scope(drafts=False)),
    ),
    Row(
        "57841",
        "a loaded request is stranded behind a head without blocks",
        _cells("BB-"),
        every(STUCK, of_kind("held by 1 loaded"), loads, in_scope(drafts=False), no(FAILURE)),
    ),
    Row(
        "57104",
        "the look-ahead block is missing after the load",
        _cells("BB-"),
        every(STUCK, of_kind("2 loaded; look-ahead"), loads),
    ),
    Row(
        "43433",
        "the engine sleeps while blocks are held for a transfer",
        _cells("BB-"),
        claim("the_engine_is_awake_while_a_transfer_is_outstanding"),
    ),
    Row(
        "41180",
        "a forced reset kills the engine while a load or a send is pending",
        _cells("BBB"),
        dies("reset_prefix_cache"),
    ),
    Row(
        "46066",
        "a forced reset with two steps in flight: placeholders fall below zero",
        _cells("BB-"),
        some(
            every(
                claim(
                    "an_output_is_credited_to_the_epoch_that_produced_it",
                    "placeholders_stays_in_range",
                    "only_a_running_request_awaits_output",
                ),
                has("Reset", forced=True),
            ),
            every(dies("_update_request_with_output"), has("Reset", forced=True)),
        ),
    ),
    Row(
        "15041",
        "the same id is added twice",
        _cells("BBB"),
        some(claim("an_id_is_given_again_only_when_it_is_free"), dies("add_request")),
    ),
    Row(
        "39734",
        "a request larger than the pool",
        _cells("BBB"),
        some(
            claim("a_request_can_fit_an_empty_pool"),
            every(STUCK, of_kind("held by nobody"), in_scope(encoder=False)),
        ),
    ),
    Row(
        "23347",
        "a preemption hits a request scheduled in the same pass",
        _cells("---"),
        claim("a_step_being_built_has_current_rows_only"),
    ),
    Row(
        "26765",
        "the request visited first preempts itself and the pass ends",
        _cells("BBB"),
        claim("a_pass_goes_on_after_a_preemption"),
    ),
    Row(
        "32173",
        "skipped requests are put back in reverse",
        _cells("B--"),
        claim("requests_that_stay_waiting_keep_their_order"),
    ),
    Row(
        "40004",
        "no preemption for a slot",
        _cells("ppp"),
        claim("a_request_of_a_higher_class_runs_before_a_lower_one"),
        why_not="a design question, judged only when a scope asks for it",
    ),
    Row(
        "31731",
        "head-of-line blocking",
        _cells("ppp"),
        claim("a_waiting_request_that_fits_is_not_held_up"),
        why_not="a design question, judged only when a scope asks for it",
    ),
    Row("30916", "drafts survive a preemption", _cells("B--"), claim("only_a_running_request_has_drafts")),
    Row(
        "46263",
        "a scheduled id is missing from the answer",
        _cells("BBB"),
        every(dies("update_from_output"), blames("worker"), has("Answer")),
    ),
    Row(
        "40707",
        "alignment floors the chunk to zero behind an image",
        _cells("/B-"),
        every(STUCK, in_scope(encoder=True, state_space=True), of_kind("RUNNING in running")),
    ),
    Row(
        "53130",
        "an idle session keeps a slot",
        _cells("/-B"),
        every(STUCK, has("Add", session=True), of_kind("WAITING_FOR_STREAMING_REQ")),
    ),
    Row(
        "52693",
        "a turn that returns no token",
        _cells("/BB"),
        claim(
            "a_running_request_with_nothing_in_flight_has_a_token_to_compute",
            "what_is_awaited_is_in_flight",
            "no_more_is_computed_than_known_or_awaited",
        ),
    ),
    Row(
        "35755",
        "the output of a turn lands in the next one",
        _cells("/B-"),
        some(
            every(
                claim(
                    "an_output_is_credited_to_the_epoch_that_produced_it",
                    "what_is_awaited_is_in_flight",
                    "only_a_running_request_awaits_output",
                ),
                has("Add", session=True),
            ),
            every(dies("_update_request_with_output"), has("Add", session=True)),
        ),
    ),
    Row(
        "45347",
        "an encoder entry is released when its step is scheduled",
        _cells("BB-"),
        claim("an_entry_that_a_step_reads_is_cached"),
    ),
    Row(
        "52482",
        "an entry allocated again is still to be dropped",
        _cells("BB-"),
        claim("a_cached_entry_is_not_to_be_dropped"),
    ),
    Row(
        "55733",
        "the encoder-decoder budget grows",
        _cells("BBB"),
        every(claim("enc_used_stays_in_range"), in_scope(encoder="encoder-decoder")),
    ),
    Row(
        "49146",
        "request_finished for a request that never had blocks",
        _cells("ppp"),
        claim("the_connector_hears_only_of_requests_that_had_blocks"),
        why_not="legal; judged only when a scope asks for it",
    ),
    Row(
        "25067", "an abort of a held request", _cells("---"), every(TOUCHED, of_kind("SEND"), after("Abort"))
    ),
)
