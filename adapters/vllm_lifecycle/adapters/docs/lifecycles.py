"""Pages of the lifecycles that a variable keeps: a diagram (or several), the states, and every transition with its rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs import mermaid
from vllm_lifecycle.adapters.docs.mermaid import Part
from vllm_lifecycle.adapters.docs.view import OURS, Lifecycle, View
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.machine import Action
from vllm_lifecycle.spec.lifecycles.vocabulary import GONE, OVER

PAGES = {
    "request": ("request",),
    "transfer": ("receive", "send", "handoff"),
    "step": ("step", "call"),
}
"""Page -> lifecycles on it."""


def pages(view: View) -> Iterator[tuple[str, list[str]]]:
    """(file name, lines) of each page."""
    for page, names in PAGES.items():
        shown = [view.lifecycles[n] for n in names if view.lifecycles[n].rows]
        lines = [f"# Lifecycle: {page}", "", f"For {view.title}.", ""]
        for lifecycle in shown:
            lines += _lifecycle(view, lifecycle, alone=len(shown) == 1)
        yield f"{page}.md", lines


def _lifecycle(view: View, lifecycle: Lifecycle, *, alone: bool) -> list[str]:
    level = "##" if alone else "###"
    lines = [] if alone else [f"## {lifecycle.name}", ""]
    lines += [lifecycle.doc, ""]
    for part in parts(view, lifecycle):
        lines += [f"{level} {part.title}", ""] if part.title else []
        lines += md.fence("mermaid", mermaid.states(part.arrows, view.name(lifecycle.initial)))
    ours = [s for s in lifecycle.states if s in OURS]
    if ours:
        names = md.codes(s.name for s in ours)
        lines += [f"Not a status of vLLM, but states that its requests can be in: {names}.", ""]
    lines += [f"{level} Transitions", ""]
    lines += md.table(("from", "to", "action", "by", "when", "effect", "source"), _rows(view, lifecycle))
    return lines


def parts(view: View, lifecycle: Lifecycle) -> list[Part]:
    """The diagrams of a lifecycle: one, or where that is too large, life apart from each way to end."""
    arrows = list(view.arrows(lifecycle))
    if len(arrows) <= mermaid.MOST:
        return [Part("", tuple(arrows))]
    over, gone = ({view.name(s) for s in group} for group in (OVER, GONE))
    groups = [Part("While it lives", tuple(a for a in arrows if not {a.source, a.target} & over))]
    ways: dict[frozenset[str], list[mermaid.Arrow]] = {}
    for end in over:
        entering = [a for a in arrows if a.target == end and a.source not in gone]
        ways.setdefault(frozenset(label for a in entering for label in a.labels), []).extend(entering)
    for entering in sorted(ways.values(), key=lambda way: [arrows.index(a) for a in way]):
        ends = ", ".join(dict.fromkeys(a.target for a in sorted(entering, key=arrows.index)))
        groups.append(Part(f"How it ends: {ends}", tuple(sorted(entering, key=arrows.index))))
    groups.append(
        Part(
            "After the end, and without a life",
            tuple(a for a in arrows if a.source in gone and {a.source, a.target} & over),
        )
    )
    return list(mermaid.split(groups))


def _rows(view: View, lifecycle: Lifecycle) -> Iterator[Sequence[str]]:
    """One row for each action and pair of sources and targets that go together."""
    for action in view.actions.values():
        moves = [r for r in lifecycle.rows if r.action == action.name]
        by_targets: dict[tuple[Enum, ...], list[Enum]] = {}
        for source in lifecycle.states:
            targets = tuple(
                s for s in lifecycle.states if any(r.source is source and r.target is s for r in moves)
            )
            if targets:
                by_targets.setdefault(targets, []).append(source)
        for targets, sources in by_targets.items():
            yield (
                md.codes(map(view.name, sources)),
                md.codes(map(view.name, targets)),
                view.link(action.name),
                action.by,
                when(action),
                md.cell(effect(action)),
                cited(view, action),
            )


def when(action: Action) -> str:
    """The guards of an action, in words where the author gave them, else as conditions."""
    told = [md.cell(why) if why else md.code(term) for why, term in text.guards(action)]
    return "; ".join(told) or "always"


def effect(action: Action) -> str:
    """What the action does: its own sentence, without the move that it starts with."""
    head, arrow, rest = action.doc.partition(": ")
    return rest if arrow and "->" in head else action.doc


def cited(view: View, action: Action) -> str:
    """The places in vLLM whose behaviour this is."""
    places = [f"{md.cell(release)}: {md.code(place)}" for release, place in view.sources(action)]
    return "<br>".join(places) or "-"
