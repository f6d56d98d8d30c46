"""`drift`: a vLLM source tree held against what the project knows of vLLM, by syntax trees alone."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.cli.run import emit
from vllm_lifecycle.spec.check.verdict import EXIT_CODES, Outcome

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.drift.compare import Drift


class Format(StrEnum):
    """How the findings are printed."""

    text = "text"
    json = "json"


def drift(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_INSTALLED_VLLM", help="A folder with the package vllm in it, or `vllm`."
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(metavar="RELEASE", help="The known release to compare with (default: the nearest)."),
    ] = None,
    cls: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="CLASS", help="Your subclass, pkg.mod:Class or path/to/file.py:Class."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print the result.")] = Format.text,
) -> None:
    """Say what a vLLM release changed under the specification, the adapters, or your subclass.

    Reads the source only: nothing of vLLM is imported or run. Exit code 2 when something no longer fits, 0 otherwise
    (with notes), 1 when there is no such tree. With --class, --against names the release that your class was written for.

    \b
    Examples
      vllm-lifecycle drift vllm
      vllm-lifecycle drift path/to/site-packages --against 0.13.0
      vllm-lifecycle drift vllm --class my/scheduler.py:MyScheduler --against 0.16.0
    """
    from vllm_lifecycle.adapters.drift import compare, hooks
    from vllm_lifecycle.adapters.drift.known import known, nearest
    from vllm_lifecycle.adapters.drift.source import NoTree, find_tree

    try:
        tree = find_tree(place)
        release = against or nearest(tree)
        found = compare.compare(tree, release)
        if cls is not None:
            user = hooks.load(tree, cls)
            findings = tuple(hooks.overrides(tree, user, known(release)))
            found = compare.Drift(found.version, release, found.facts, findings)
    except NoTree as why:
        raise UsageProblem(str(why)) from None
    emit(_json(found) if form is Format.json else _text(found))
    raise typer.Exit(EXIT_CODES[Outcome.REFUTED if found.breaking else Outcome.HOLDS])


def _text(found: Drift) -> str:
    notes = [f for f in found.findings if not f.breaks]
    lines = [f"vLLM {found.version or 'of an unknown release'} against {found.against}"]
    for title, rows in (("breaks", found.breaking), ("notes", notes)):
        if rows:
            lines += ["", f"{title}:", *(f"  {f.about}: {f.text}" for f in rows)]
    lines += ["", f"drift: {len(found.breaking)} that break, {len(notes)} notes"]
    return "\n".join(lines)


def _json(found: Drift) -> str:
    from vllm_lifecycle.adapters.cli.render import dump

    rows = [{"breaks": f.breaks, "about": f.about, "text": f.text} for f in found.findings]
    return dump({"version": found.version, "against": found.against, "findings": rows})
