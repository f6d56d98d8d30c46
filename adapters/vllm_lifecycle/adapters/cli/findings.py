"""What becomes of an explorer's findings: verdicts, saved files, and the comparison with known ones.

Without a list of known findings each is a refutation, and each scope in which nothing fell answers for what it covered. With
one (`--baseline`, `--expect`) the question is another: does anything fall that is not known? That is one verdict for the whole
search; known findings are its assumptions, and it says which expected ones did not show. Those do not fail the check: a search
within bounds can miss what is still there, so a build would turn red and green by chance; `replay` of the saved finding decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.report.evidence import Shown
from vllm_lifecycle.spec.check.verdict import Outcome, TraceStep, Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.baseline import Comparison, Known
    from vllm_lifecycle.adapters.vllm.explore import Exploration
    from vllm_lifecycle.adapters.vllm.report import Finding, StepLine
    from vllm_lifecycle.adapters.vllm.search import Coverage

EXPLORER = "explorer"


@dataclass(frozen=True, slots=True)
class Keeping:
    """Options of `check TARGET` about its findings: files and folders as the user named them."""

    save: str | None = None
    baseline: str | None = None
    update: bool = False
    expect: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The same, read and checked before the search begins."""

    folder: Path | None
    baseline: Path | None
    known: frozenset[Known]
    expected: frozenset[Known]
    compared: bool


def prepare(keeping: Keeping) -> Kept:
    """Read the lists and make sure that results can be written; raises UsageProblem."""
    from vllm_lifecycle.adapters import files
    from vllm_lifecycle.adapters.vllm import baseline

    if keeping.update and keeping.baseline is None:
        raise UsageProblem("--update-baseline needs the file to write: name it, as --baseline known.json")
    folder = None if keeping.save is None else Path(keeping.save)
    place = None if keeping.baseline is None else Path(keeping.baseline)
    expect = None if keeping.expect is None else Path(keeping.expect)
    try:
        if folder is not None:
            files.check_folder(folder)
        if place is not None and keeping.update:
            files.check_folder(place.parent)
            files.check_place(place, baseline.MARK)
        fresh = keeping.update and place is not None and not place.exists()
        known = frozenset() if place is None or fresh else baseline.read(place)
        expected = frozenset() if expect is None else baseline.read(expect)
    except (files.NotWritten, baseline.NoBaseline) as why:
        raise UsageProblem(str(why)) from None
    compared = place is not None or expect is not None
    return Kept(folder, place if keeping.update else None, known, expected, compared)


def verdicts(found: Exploration, kept: Kept) -> Iterator[Verdict]:
    """The verdicts of an exploration, after its findings were saved."""
    from vllm_lifecycle.adapters import files
    from vllm_lifecycle.adapters.vllm import baseline, saving

    known, trouble = kept.known, []
    try:
        if kept.folder is not None:
            saving.save(found.findings, kept.folder)
        if kept.baseline is not None:
            known |= {baseline.Known.of(f) for f in found.findings}
            baseline.write(kept.baseline, known)
    except files.NotWritten as why:
        trouble.append(
            Verdict("every finding is kept", Outcome.NOT_ESTABLISHED, EXPLORER, "", reason=str(why))
        )
    names = {f.key: name for name, f in saving.names(found.findings).items()}
    folder = None if trouble else kept.folder
    result = baseline.compare(found.findings, known, kept.expected)
    for finding in result.new:
        yield _refuted(finding, names[finding.key], folder)
    if kept.compared:
        yield _nothing_new(found, result)
    else:
        fallen = {f.scope.name for f in found.findings}
        yield from (_covered(part) for part in found.coverage if part.scope not in fallen)
    yield from trouble


def trace(steps: tuple[StepLine, ...]) -> tuple[TraceStep, ...]:
    """A sequence of calls as a trace."""
    return tuple(
        TraceStep(f"{s.call}{f'  <- breaks the contract: {s.breach}' if s.breach else ''}", (), _lines(s))
        for s in steps
    )


def _lines(step: StepLine) -> tuple[tuple[str, str], ...]:
    return tuple((change, "") for change in step.changes)


def _refuted(finding: Finding, name: str, folder: Path | None) -> Shown:
    from vllm_lifecycle.adapters.vllm import as_test

    at = f" at {finding.site}" if finding.site else ""
    rule = f" ({finding.breach})" if finding.breach else ""
    saved = f"; saved as {folder / name}.json" if folder else ""
    numbers = {
        "length": len(finding.steps),
        "fault": finding.fault,
        "site": finding.site,
        "vllm": finding.version,
    }
    return Shown(
        finding.claim,
        Outcome.REFUTED,
        EXPLORER,
        finding.scope.name,
        reason=f"{finding.message}{at}; fault: {finding.fault}{rule}{saved}",
        trace=trace(finding.steps),
        numbers=numbers,
        picture=finding.picture,
        test=as_test.test_text(finding, name),
        message=finding.message,
        known_as=(finding.target, *finding.known_as),
    )


def _covered(part: Coverage) -> Verdict:
    outcome = Outcome.HOLDS if part.complete else Outcome.NOT_ESTABLISHED
    reason = "" if part.complete else f"cut off by {part.cut_by or 'time'}"
    if reason and (part.transitions or part.walks):
        reason += "; nothing fell until then"
    numbers = {
        "states": part.states,
        "transitions": part.transitions,
        "depth": part.depth,
        "walks": part.walks,
    }
    return Verdict("every property", outcome, EXPLORER, part.scope, reason=reason, numbers=numbers)


def _nothing_new(found: Exploration, result: Comparison) -> Verdict:
    """One verdict for the search as a whole; a scope that was not searched leaves it open."""
    missed = [f"{c.scope}: {c.cut_by}" for c in found.coverage if not c.transitions and not c.walks]
    if result.new:
        outcome, reason = Outcome.REFUTED, f"{len(result.new)} new"
    elif missed:
        outcome, reason = Outcome.NOT_ESTABLISHED, f"not searched: {'; '.join(missed)}"
    else:
        outcome, reason = Outcome.HOLDS, ""
    notes = [f"known: {k}" for k in result.accepted]
    notes += [f"expected and no longer found in this search: {k}" for k in result.gone]
    return Verdict(
        "nothing_new_falls_in_this_search",
        outcome,
        EXPLORER,
        ", ".join(c.scope for c in found.coverage),
        tuple(notes),
        reason,
        numbers={
            "states": sum(c.states for c in found.coverage),
            "transitions": sum(c.transitions + c.walk_events for c in found.coverage),
        },
    )
