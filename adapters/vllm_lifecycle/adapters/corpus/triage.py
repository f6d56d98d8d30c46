"""What findings beyond the rows turned out to be when their sequences were followed in the source.

Three answers are possible: it is real, the specification is wrong, the property is too strong.  The latter two are repaired
where they arise and leave no row here; what stays is real, with the code that does it.  `of` names the row whose mechanism it
is, when it is a known one by another way.  The first row that recognises a finding explains it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .omni_rows import HANDOFF
from .recognise import (
    Found,
    Recogniser,
    after,
    blames,
    claim,
    dies,
    every,
    has,
    in_scope,
    loads,
    no,
    of_kind,
    some,
)
from .vllm_rows import FAILURE, STUCK, TOUCHED

CREDITED = claim("an_output_is_credited_to_the_epoch_that_produced_it")
FORGOTTEN = claim("an_outstanding_transfer_belongs_to_a_tracked_request")
POLLED = claim("only_a_live_request_is_polled_for_or_has_a_chunk")


@dataclass(frozen=True)
class Triage:
    """One kind of finding, and why it is real."""

    title: str
    why: str
    """The upstream code that does it, and what follows."""
    recognise: Recogniser
    of: str = ""


TRIAGE: tuple[Triage, ...] = (
    Triage(
        "an id is used again while a step of its former owner is out",
        "`update_from_output` looks a request up by its id alone, so the old step's token goes to the new request;"
        " servers make ids unique by a suffix since 0.16, a user of the engine in process does not",
        every(CREDITED, after("Add")),
    ),
    Triage(
        "an abort or a preemption frees blocks while a dispatched step writes them",
        "`finish_requests` and `_preempt_request` free at once; the deferred frees that repaired a stop cover all "
        "of them",
        claim("a_free_block_is_not_touched_by_a_step"),
        "45357",
    ),
    Triage(
        "three loads fill the pool",
        "each holds what it loaded and waits for its last block",
        every(STUCK, of_kind("3 loaded")),
        "45388",
    ),
    Triage(
        "a loaded request behind a head that lacks its look-ahead block",
        "the waiting loop breaks at the head, whose need counts the look-ahead, and never comes to the loaded one",
        every(STUCK, of_kind("1 loaded; look-ahead")),
        "57841",
    ),
    Triage(
        "a request that is not admitted keeps its reference to an encoder entry",
        "the waiting loop takes the reference before it allocates blocks and does not give it back when that "
        "fails; whoever needs the room of that entry waits for ever",
        every(STUCK, in_scope(encoder="decoder-only", state_space=False)),
    ),
    Triage(
        "the next one in the queue waits for a chunk of zero tokens too",
        "as the row: what runs is never given a token, so what waits behind it is not either",
        every(STUCK, in_scope(encoder=True, state_space=True)),
        "40707",
    ),
    Triage(
        "a grammar that does not compile kills the engine",
        "`_check_grammar_completion` asks the future for its result inside `schedule`, and the exception leaves it",
        dies("_check_grammar_completion"),
    ),
    Triage(
        "the end of a load with two KV groups kills the engine",
        "`_update_waiting_for_remote_kv` unpacks the block ids of one group, although the connector supports "
        "hybrid allocation",
        dies("_update_waiting_for_remote_kv"),
        "45474",
    ),
    Triage(
        "a report that nobody took is taken for the next owner of the id",
        "the id stays in the set of finished receives when its request is gone; the next load under it is promoted"
        " before it arrived, and its blocks are hashed",
        every(
            some(
                claim("a_cached_block_has_its_content"),
                every(TOUCHED, of_kind("RECEIVE"), after("Schedule")),
                every(CREDITED, loads),
            )
        ),
    ),
    Triage(
        "an abort forgets a request whose load has ended and was not reported",
        "`finish_requests` frees and forgets at once while the report is under way, which then meets nobody or the"
        " next owner",
        every(FORGOTTEN, of_kind("RECEIVE"), after("Abort")),
        "32255",
    ),
    Triage(
        "a connector's early report ends a transfer that begins after it",
        "the report is kept by id and matched with what comes later under that id; the connector broke its "
        "contract, and the scheduler lets blocks go that the transfer still reads",
        every(
            some(TOUCHED, FORGOTTEN, claim("a_transfer_ends_only_when_nobody_touches_its_blocks")),
            some(of_kind("SEND"), of_kind("RECEIVE")),
            blames("connector"),
        ),
        "26929",
    ),
    Triage(
        "a held request ends twice: two sends, which one report or one hold covers",
        "the answer of a step that was out is processed after the end, and `request_finished` is called again; the "
        "blocks go with the first report, and a second one meets nobody",
        every(
            some(every(TOUCHED, of_kind("SEND"), after("Answer")), dies("_update_from_kv_xfer_finished")),
            has("Add", hold=True),
            no(loads),
            blames("scheduler"),
        ),
        "33377",
    ),
    Triage(
        "a failed load ends a request whose blocks its connector wants to send",
        "the failed receive counts as finished and frees what `request_finished` had just been told to hold",
        every(some(FORGOTTEN, TOUCHED), after("Answer"), loads, has("Add", hold=True)),
        "46240",
    ),
    Triage(
        "a failed load stays in the books of loads that are promised blocks",
        "under the recompute policy the request stays in `_inflight_prefills`, so its promise blocks itself and a "
        "loaded one behind it",
        every(STUCK, FAILURE),
    ),
    Triage(
        "a failed synchronous load with a second step out",
        "the answer of the first step is dropped with its placeholder left standing, and the second one, computed "
        "from blocks that were never loaded, is taken for a result",
        every(
            some(
                claim("placeholders_is_counted_right", "what_is_awaited_is_in_flight"),
                claim("no_more_is_computed_than_known_or_awaited"),
            ),
            FAILURE,
        ),
    ),
    Triage(
        "an answer without a token leaves its placeholder standing",
        "`update_from_output` takes back as many placeholders as there are tokens; the worker broke its contract, and the"
        " request is scheduled beyond what it knows",
        every(claim("placeholders_is_counted_right", "what_is_awaited_is_in_flight"), blames("worker")),
        "52693",
    ),
    Triage(
        "a forced reset with nothing in flight drops the next answer",
        "`discard_latest_async_tokens` is set whether or not a step is out",
        every(
            some(
                STUCK,
                claim(
                    "a_running_request_with_nothing_in_flight_has_a_token_to_compute",
                    "placeholders_is_counted_right",
                    "what_is_awaited_is_in_flight",
                ),
            ),
            has("Reset", forced=True),
        ),
        "46066",
    ),
    Triage(
        "an aborted request is marked for its hand-off",
        "`_free_request` holds and marks whatever was not triggered before, however the request ended",
        some(
            claim("a_request_that_ended_badly_is_not_waiting_to_be_shipped"),
            every(
                claim("a_request_handed_off_at_its_end_ships_all_its_blocks", "a_handoff_names_some_block"),
                after("Abort"),
            ),
        ),
        "A5",
    ),
    Triage(
        "a request that ends without blocks is marked for its hand-off",
        "as by an abort before the first pass, here by the answer of a step that was out when it was preempted",
        every(claim("a_handoff_names_some_block"), after("Answer")),
        "A5",
    ),
    Triage(
        "the report of a receive ends the hold of a hand-off",
        "`_update_from_kv_xfer_finished` frees a finished request without asking for its hand-off",
        every(FORGOTTEN, of_kind("HANDOFF"), after("Answer")),
        "A12",
    ),
    Triage(
        "a failed load ends a request parked for a chunk, which stays in the running list",
        "`finish_requests` picks the queue by the status, as for an abort",
        every(claim("a_slot_in_use_has_a_request"), after("Answer")),
        "A22",
    ),
    Triage(
        "a stop leaves the poll entry",
        "the chunk adapter is cleaned up after failed loads only",
        every(POLLED, some(after("Answer"), after("Schedule"))),
        "A26",
    ),
    Triage(
        "the next owner of an id waits for a chunk that its predecessor took",
        "`get_req_chunk` counts on under the same id",
        every(STUCK, of_kind("WAITING_FOR_CHUNK")),
        "A26",
    ),
    Triage(
        "a session is handed off again after each turn",
        "`update_from_output` takes a request that stopped off the set of those triggered, also when only its turn ended; "
        "the next turn, or its end, marks it once more",
        every(claim("a_request_is_handed_off_at_most_once"), has("Add", session=True)),
    ),
    Triage(
        "an acknowledgement before the shipment",
        "what is not active counts as acknowledged; the worker broke its contract, and the blocks are freed while "
        "they wait to be shipped",
        every(HANDOFF, no(blames("scheduler"))),
        "A2",
    ),
)


def explain(found: Found, triage: Iterable[Triage] = TRIAGE) -> Triage | None:
    """The row that explains a finding beyond the rows; None while nobody has looked at it."""
    return next((row for row in triage if row.recognise(found)), None)
