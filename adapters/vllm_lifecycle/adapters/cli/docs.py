"""`docs build`, `docs check`, `docs diff`: lifecycle documents from the specification, and whether those committed are fresh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.cli.run import carry_out, emit
from vllm_lifecycle.adapters.files import NotWritten
from vllm_lifecycle.spec.check.verdict import EXIT_CODES, Outcome

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.docs.evidence import Evidence

app = typer.Typer(
    rich_markup_mode=None,
    help="Lifecycle documents: build them, check that they are fresh, compare releases.",
)

FOLDER = "docs/lifecycles"
FolderOption = Annotated[str, typer.Option("--out", metavar="DIR", help="Where the pages are.")]
ReleaseOption = Annotated[
    str | None,
    typer.Option(metavar="RELEASE", help="Only what this release has, in its words. See `docs diff`."),
]


@app.command()
def build(
    out: FolderOption = FOLDER,
    release: ReleaseOption = None,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="Ask the engines again and record their answers (some minutes)."),
    ] = False,
) -> None:
    """Write the lifecycle pages.

    One page for each lifecycle with its diagram and transitions, one for their coupling, one for the properties with
    the status that the engines gave them. The status comes from evidence.json beside the pages; --evidence writes that.

    \b
    Examples
      vllm-lifecycle docs build
      vllm-lifecycle docs build --release 0.32.0 --out build/lifecycles-0.32.0
      vllm-lifecycle docs build --evidence
    """
    from vllm_lifecycle.adapters.docs import build as building
    from vllm_lifecycle.adapters.docs import evidence as recorded
    from vllm_lifecycle.adapters.docs.view import View
    from vllm_lifecycle.adapters.files import check_folder, write, write_all
    from vllm_lifecycle.spec.profiles import profile

    folder = Path(out)
    view = View(profile(release) if release else None)
    try:
        check_folder(folder)
        known = _ask() if evidence else _read(folder, release)
        pages = building.pages(view, known)
        # The file of evidence is first: pages that cite it are never without it.
        write(folder / recorded.NAME, recorded.dump(known), recorded.MARK)
        write_all(folder, {name: (text, building.MARK) for name, text in pages.items()})
    except NotWritten as why:
        raise UsageProblem(str(why)) from None
    emit(f"{len(pages)} pages for {view.title} in {folder}")


def _read(folder: Path, release: str | None) -> Evidence:
    """The evidence beside the pages, or for the pages of a release elsewhere that of the project."""
    from vllm_lifecycle.adapters.docs import evidence as recorded

    try:
        found = recorded.read(folder)
        return recorded.read(Path(FOLDER)) if found == recorded.EMPTY and release else found
    except recorded.Unreadable as why:
        raise UsageProblem(str(why)) from None


def _ask() -> Evidence:
    """What the engines answer now, about everything."""
    from vllm_lifecycle.adapters.cli import services
    from vllm_lifecycle.adapters.docs import blocks, custody, moves
    from vllm_lifecycle.adapters.docs.digest import current
    from vllm_lifecycle.adapters.docs.evidence import record
    from vllm_lifecycle.adapters.report.model import Stage

    stages = [
        *services.check_everything((), services.ProofOptions(seeds=3)),
        Stage(blocks.TITLE, blocks.verdicts),
        Stage(custody.CLAIM, lambda progress: [custody.verdict(progress)]),
        Stage(moves.CLAIM, lambda progress: [moves.verdict(progress)]),
    ]
    report = carry_out("docs build", stages)
    verdicts = [v for section in report.sections for v in section.verdicts]
    if len(report.sections) < len(stages) or any(v.reason.startswith("interrupted") for v in verdicts):
        raise UsageProblem("interrupted: no evidence was written, for it would not be whole")
    return record(current(), verdicts)


@app.command()
def check(out: FolderOption = FOLDER) -> None:
    """Say what of the committed pages is stale; exit code 2 when anything is.

    \b
    Examples
      vllm-lifecycle docs check
    """
    from vllm_lifecycle.adapters.docs import build as building
    from vllm_lifecycle.adapters.docs.evidence import Unreadable

    folder = Path(out)
    if not folder.is_dir():
        raise UsageProblem(
            f"there is no folder {folder}: name it with --out, or run `vllm-lifecycle docs build`"
        )
    try:
        problems = building.stale(folder)
    except Unreadable as why:
        raise UsageProblem(str(why)) from None
    emit("\n".join(problems) or f"{folder}: fresh")
    raise typer.Exit(EXIT_CODES[Outcome.REFUTED if problems else Outcome.HOLDS])


@app.command()
def diff(
    old: Annotated[str, typer.Option("--from", metavar="RELEASE", help="The older release.")],
    new: Annotated[str, typer.Option("--to", metavar="RELEASE", help="The newer release.")],
) -> None:
    """Print what one release changed in the lifecycles of another.

    \b
    Examples
      vllm-lifecycle docs diff --from 0.13.0 --to 0.32.0
      vllm-lifecycle docs diff --from 0.16.0 --to omni-0.16.0
    """
    from vllm_lifecycle.adapters.docs.releases import diff as difference

    never = frozenset(_read(Path(FOLDER), old).never)
    emit("\n".join(difference(old, new, never)).rstrip())
