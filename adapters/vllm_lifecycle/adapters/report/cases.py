"""What the page shows of one counterexample: the numbers of rows and columns that the template writes out.

Cases are numbered in the order of the report; a trace that shows a known defect (a mutant that is refuted as it should be) is
kept apart from those that say something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from vllm_lifecycle.adapters.report import lanes, traces, words
from vllm_lifecycle.adapters.report.custody import Frame, Moment, Picture
from vllm_lifecycle.adapters.report.evidence import Shown
from vllm_lifecycle.adapters.report.model import Report
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

HEAD = 1
"""Row of the calls; lanes begin below it."""


def number(report: Report) -> dict[int, tuple[Verdict, str]]:
    """The verdicts that have something to show, by identity, with the names of their places on the page."""
    found = [v for s in report.sections for v in s.verdicts if v.trace or _picture(v)]
    return {id(v): (v, f"case-{n}") for n, v in enumerate(found, start=1)}


def case(verdict: Verdict, place: str) -> dict[str, Any]:
    """Everything that the template needs for one counterexample."""
    picture = _picture(verdict)
    assert picture is not None
    groups, rows = _groups(lanes.groups(picture), picture)
    falls = _falls(picture)
    steps = len(picture.moments) - picture.lasting
    return {
        "id": place,
        "claim": verdict.claim,
        "defect": "mutant" in verdict.numbers and verdict.outcome is Outcome.HOLDS,
        "hint": f"{steps} {'call' if steps == 1 else 'calls'}, {verdict.scope}",
        **_told(verdict),
        "facts": list(_facts(verdict, steps)),
        "columns": [_column(n, m, picture) for n, m in enumerate(picture.moments)],
        "falls": {"column": falls.start + 2, "length": len(falls)} if falls else None,
        "groups": groups,
        "rows": rows,
        "legend": lanes.legend(picture),
        "data": {"falls": falls_text(verdict, picture), "moments": list(_moments(picture, falls))},
        "again": _again(verdict),
    }


def _told(verdict: Verdict) -> dict[str, str]:
    """What the property says, and how it falls, without saying the one twice."""
    sense = words.meanings().get(words.property_of(verdict), "")
    message = verdict.message if isinstance(verdict, Shown) and verdict.message else verdict.reason
    return {"meaning": "" if message.startswith(sense) else sense, "message": message}


def falls_text(verdict: Verdict, picture: Picture) -> str:
    """The sentence at the moment of the violation."""
    name = words.property_of(verdict)
    if picture.lasting:
        return f"{name}: it never happens"
    return f"{name} falls here" if picture.loop is None else f"{name}: this goes on for ever"


def _picture(verdict: Verdict) -> Picture | None:
    if isinstance(verdict, Shown) and verdict.picture is not None:
        return verdict.picture
    return traces.picture(verdict)


def _falls(picture: Picture) -> range:
    """The moments that are marked: the last one, or those that repeat for ever."""
    if not picture.falls:
        return range(0)
    last = len(picture.moments) - 1
    return range(last if picture.loop is None else min(picture.loop, last), last + 1)


def _facts(verdict: Verdict, steps: int) -> Iterator[tuple[str, str]]:
    told = verdict.numbers
    yield "scope", verdict.scope
    yield "engine", verdict.engine
    for name, key in (("fault", "fault"), ("at", "site"), ("vLLM", "vllm")):
        if told.get(key):
            yield name, str(told[key])
    yield "length", f"{steps} {'call' if steps == 1 else 'calls'}"


def _column(place: int, moment: Moment, picture: Picture) -> dict[str, Any]:
    falls, breach = _falls(picture), f"\nbreaks the contract: {moment.breach}" if moment.breach else ""
    mark = "never" if picture.lasting else "falls" if picture.loop is None else "for ever"
    return {
        "number": "after" if _beyond(place, picture) else str(place + 1),
        "call": moment.call,
        "name": moment.call.partition("(")[0],
        "tip": f"{_title(place, picture)}: {moment.call}{breach}",
        "breach": moment.breach,
        "changes": moment.changes,
        "falls": mark if falls and place == falls.start else "",
    }


def _beyond(place: int, picture: Picture) -> bool:
    return picture.lasting and place == len(picture.moments) - 1


def _title(place: int, picture: Picture) -> str:
    """How a moment is called."""
    if _beyond(place, picture):
        return "after the last call"
    return f"call {place + 1} of {len(picture.moments) - picture.lasting}"


def _groups(found: Iterable[lanes.Group], picture: Picture) -> tuple[list[dict[str, Any]], int]:
    """The groups with the rows of their lanes, and the number of the last row."""
    row = HEAD
    out: list[dict[str, Any]] = []
    for group in found:
        row += 1
        title_row, placed = row, []
        for lane in group.lanes:
            row += 1
            bars = [_bar(lane.name, bar, row + n) for n, bars in enumerate(lane.rows) for bar in bars]
            height = max(1, len(lane.rows))
            placed.append(
                {"name": lane.name, "row": row, "height": height, "subject": lane.subject, "bars": bars}
            )
            row += height - 1
        out.append({"title": group.title, "row": title_row, "lanes": placed})
    return out, row


def _bar(lane: str, bar: lanes.Bar, row: int) -> dict[str, Any]:
    first, last = bar.start + 1, bar.start + bar.length
    when = f"after call {first}" if first == last else f"after calls {first} to {last}"
    return {
        "row": row,
        "column": bar.start + 2,
        "length": bar.length,
        "kind": bar.kind,
        "text": bar.text,
        "short": bar.short if bar.short != bar.text else "",
        "tip": f"{lane}: {bar.text}\n{when}",
    }


def _moments(picture: Picture, falls: range) -> Iterator[dict[str, Any]]:
    for place, (moment, frame) in enumerate(zip(picture.moments, lanes.observed(picture), strict=True)):
        yield {
            "title": _title(place, picture),
            "call": moment.call,
            "changes": list(moment.changes),
            "breach": moment.breach,
            "falls": place in falls,
            "requests": [
                {"name": r.name, "status": r.status, "facts": ", ".join(r.facts)} for r in frame.requests
            ],
            "blocks": list(_owners(frame, picture.subjects)),
        }


def _owners(frame: Frame, subjects: frozenset[str]) -> Iterator[dict[str, Any]]:
    for blocks in lanes.alike(frame.blocks, lambda block: lanes.fate(frame, block), subjects):
        owners = [{"kind": kind, "text": text} for kind, text in lanes.fate(frame, blocks[0])]
        yield {"name": lanes.named(blocks), "owners": owners, "subject": bool(subjects & {*blocks})}


def _again(verdict: Verdict) -> dict[str, str] | None:
    """What can be copied to have the counterexample again: a test, or the command that finds it."""
    if isinstance(verdict, Shown) and verdict.test:
        return {"title": "As a pytest", "button": "Copy the pytest", "text": verdict.test}
    if "mutant" in verdict.numbers:
        command = f"vllm-lifecycle mutants {verdict.numbers['mutant']}"
        return {"title": "Find it again", "button": "Copy the command", "text": command}
    return None
