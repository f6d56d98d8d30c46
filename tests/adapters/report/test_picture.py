"""Lanes, pictures of traces, and diagrams: bars tell what the frames say, and nothing overlaps."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.report.samples import DEFECT, HOLDS, REFUTED, TRACE

from vllm_lifecycle.adapters.report import lanes, traces
from vllm_lifecycle.adapters.report.custody import (
    Frame,
    Holding,
    Kind,
    Moment,
    Picture,
    RequestRow,
    request_name,
)
from vllm_lifecycle.adapters.report.diagrams import MOST, Diagram, diagrams
from vllm_lifecycle.adapters.report.lanes import Group
from vllm_lifecycle.spec.check.verdict import TraceStep
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.tables import tables

BLOCKS = ("1", "2", "3")
KINDS: tuple[Kind, ...] = ("table", "step", "receive", "send", "handoff", "deferred")
holdings = st.builds(
    Holding,
    st.sampled_from(KINDS),
    st.sampled_from(["r0", "r1"]),
    st.frozensets(st.sampled_from(BLOCKS), min_size=1),
)
frames = st.builds(
    Frame,
    requests=st.lists(
        st.builds(RequestRow, st.sampled_from(["r0", "r1"]), st.sampled_from([s.name for s in Status]))
    ).map(tuple),
    blocks=st.just(BLOCKS),
    free=st.one_of(st.none(), st.lists(st.sampled_from(BLOCKS)).map(tuple)),
    cached=st.frozensets(st.sampled_from(BLOCKS)),
    holdings=st.lists(holdings, max_size=4).map(tuple),
)
pictures = st.builds(
    Picture,
    st.lists(
        st.builds(Moment, st.just("call()"), frame=st.one_of(st.none(), frames)), min_size=1, max_size=8
    ).map(tuple),
    subjects=st.frozensets(st.sampled_from([*BLOCKS, "r0"])),
)


def group(drawn: Picture, title: str) -> dict[str, list[list[tuple[int, int, str]]]]:
    """Lane -> rows of (start, length, text)."""
    found: list[Group] = [g for g in lanes.groups(drawn) if g.title == title]
    return {
        lane.name: [[(b.start, b.length, b.text) for b in row] for row in lane.rows]
        for g in found
        for lane in g.lanes
    }


@given(pictures)
def test_bars_tell_exactly_what_is_so_at_each_moment(drawn: Picture) -> None:
    seen = lanes.observed(drawn)
    for drawn_group in lanes.groups(drawn):
        for lane in drawn_group.lanes:
            for row in lane.rows:
                assert all(a.start + a.length <= b.start for a, b in pairwise(row))
    blocks = {lane.name: lane for g in lanes.groups(drawn) if g.title == "blocks" for lane in g.lanes}
    for name in BLOCKS:
        own = [lane for label, lane in blocks.items() if name in _members(label)]
        for at, frame in enumerate(seen):
            told = {
                b.text for lane in own for row in lane.rows for b in row if b.start <= at < b.start + b.length
            }
            assert told == {text for _, text in (lanes.fate(frame, name) if name in frame.blocks else ())}


def _members(label: str) -> set[str]:
    ends = label.split(" ")[1].split("\u2013")
    return set(BLOCKS[BLOCKS.index(ends[0]) : BLOCKS.index(ends[-1]) + 1])


def test_a_free_block_that_is_still_written_has_both_bars_at_once() -> None:
    held = Frame((), (), ("1", "2"), ("2",), frozenset(), (Holding("receive", "r0", frozenset({"1"})),))
    freed = replace(held, free=("2", "1"))
    drawn = Picture((Moment("a()", frame=held), Moment("b()", frame=freed)), frozenset({"1"}))
    assert group(drawn, "blocks") == {
        "block 1": [[(0, 2, "receive r0")], [(1, 1, "free")]],
        "block 2": [[(0, 2, "free")]],
    }


def test_a_block_that_nobody_holds_and_that_is_not_free_is_told() -> None:
    leaked = Frame(blocks=("1", "2"), free=("2", "2"))
    assert group(Picture((Moment("a()", frame=leaked),)), "blocks") == {
        "block 1": [[(0, 1, "no holder")]],
        "block 2": [[(0, 1, "free, 2 times")]],
    }


def test_after_the_engine_died_the_last_frame_stays() -> None:
    alive = Moment("a()", frame=Frame((RequestRow("r0", "RUNNING"),)))
    assert group(Picture((alive, Moment("b()"))), "requests") == {"r0": [[(0, 2, "RUNNING")]]}


def test_every_status_has_a_kind_and_every_kind_a_legend() -> None:
    kinds = {s.name: lanes.status_kind(s.name) for s in Status}
    assert kinds["WAITING"] == "waiting"
    assert kinds["WAITING_FOR_REMOTE_KVS"] == "blocked"
    assert kinds["WAITING_FOR_TRANSFER_FREE"] == "custody"
    assert kinds["FINISHED_ERROR"] == "finished"
    assert set(kinds.values()) | set(KINDS) <= set(lanes.LEGEND)


def test_an_id_that_is_given_again_is_told_apart() -> None:
    assert [request_name("r0", e) for e in (-1, 0, 1)] == ["r0", "r0", "r0 (2)"]


def test_a_trace_of_the_specification_becomes_a_picture() -> None:
    drawn = traces.picture(DEFECT)
    assert drawn is not None
    assert group(drawn, "requests") == {"r0": [[(0, 1, "WAITING"), (1, 1, "WAITING_FOR_REMOTE_KVS")]]}
    assert group(drawn, "blocks") == {
        "block b0": [[(0, 1, "free"), (1, 1, "table r0"), (2, 1, "free")], [(1, 2, "receive r0")]]
    }
    assert drawn.moments[0].changes == ("status[r0]: FREED -> WAITING",)


def test_a_cell_that_changes_later_has_its_first_value_before() -> None:
    late = replace(
        REFUTED, trace=(TraceStep("wait", ()), TraceStep("use", (), (("free[b0]", "true -> false"),)))
    )
    drawn = traces.picture(late)
    assert drawn is not None
    assert group(drawn, "blocks") == {"block b0": [[(0, 1, "free"), (1, 1, "no holder")]]}


def test_without_the_free_pool_in_the_trace_nothing_is_said_of_it() -> None:
    drawn = traces.picture(
        replace(REFUTED, trace=(TraceStep("t", (), (("table[r0, b0]", "false -> true"),)),))
    )
    assert drawn is not None
    assert group(drawn, "blocks") == {"block b0": [[(0, 1, "table r0")]]}


def test_a_run_without_end_marks_what_repeats() -> None:
    drawn = traces.picture(replace(REFUTED, numbers={"prefix": 1, "cycle": 2}))
    assert drawn is not None
    assert drawn.loop == 1
    assert traces.picture(HOLDS) is None
    assert len(TRACE) == 3


DIAGRAMS = [d for table in tables().values() for d in diagrams(table)]


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda d: d.id)
def test_boxes_and_numbers_of_a_diagram_do_not_overlap(diagram: Diagram) -> None:
    boxes = [(n.x, n.y, n.x + n.width, n.y + n.height) for n in diagram.nodes]
    numbers = [(e.x - 8.5, e.y - 8.5, e.x + 8.5, e.y + 8.5) for e in diagram.edges]
    for a, b in combinations([*boxes, *numbers], 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)
    assert all(
        x0 >= 0 and y0 >= 0 and x1 <= diagram.width and y1 <= diagram.height for x0, y0, x1, y1 in boxes
    )


def test_diagrams_show_every_edge_of_every_lifecycle_once() -> None:
    for table in tables().values():
        drawn = list(diagrams(table))
        shown = [
            (s, t)
            for d in drawn
            for e in d.edges
            for s in e.names[0].split(", ")
            for t in e.names[1].split(", ")
        ]
        wanted = {(r.source.name, r.target.name) for r in table.rows}
        assert wanted <= set(shown)
        assert sum(len(d.edges) for d in drawn) == len({e.names for d in drawn for e in d.edges})
        assert {(a, e.names) for d in drawn for e in d.edges for a in e.actions} == {
            (r.action, e.names)
            for r in table.rows
            for d in drawn
            for e in d.edges
            if r.source.name in e.names[0].split(", ") and r.target.name in e.names[1].split(", ")
        }
        assert all(len(d.edges) <= MOST for d in drawn)
