"""The page of the coupling: lifecycles move together because they share actions."""

from __future__ import annotations

from itertools import combinations

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs import mermaid
from vllm_lifecycle.adapters.docs.custody import HOLDERS
from vllm_lifecycle.adapters.docs.evidence import Evidence
from vllm_lifecycle.adapters.docs.view import View

BLOCK = "block"
NAMED = 3
"""Shared actions that an edge of the picture names; with more it says how many, and the table has them."""
HEAD = """One action may move objects of several lifecycles at once; that is all the coupling there is. A line joins
two lifecycles that share actions; the table says what each of those actions does to whom. A block moves when it gets or
loses a holder.
"""


def page(view: View, evidence: Evidence) -> list[str]:
    """The lines of the page."""
    moved = _moved(view, evidence)
    lines = ["# How the lifecycles are coupled", "", f"For {view.title}.", "", *HEAD.splitlines(), ""]
    names = list(dict.fromkeys(n for cells in moved.values() for n in cells))
    arrows = []
    for one, other in combinations(names, 2):
        shared = [a for a, cells in moved.items() if one in cells and other in cells]
        if shared:
            label = tuple(shared) if len(shared) <= NAMED else (f"{len(shared)} actions",)
            arrows.append(mermaid.Arrow(one, other, label))
    for part in mermaid.split([mermaid.Part("", tuple(arrows))]):
        lines += md.fence("mermaid", mermaid.flow(names, part.arrows))
    rows = [
        (
            view.link(action),
            view.actions[action].by,
            *(cells.get(n, "") for n in names),
        )
        for action, cells in moved.items()
        if len(cells) > 1
    ]
    return lines + md.table(("action", "by", *names), rows)


def _moved(view: View, evidence: Evidence) -> dict[str, dict[str, str]]:
    """Action -> lifecycle -> what it does to objects of it."""
    found: dict[str, dict[str, str]] = {}
    for action in view.actions:
        cells: dict[str, str] = {}
        held = _holders(evidence, action)
        if held:
            cells[BLOCK] = held
        for name, lifecycle in view.lifecycles.items():
            targets = dict.fromkeys(view.name(r.target) for r in lifecycle.rows if r.action == action)
            if targets:
                cells[name] = f"to {md.codes(targets)}"
        found[action] = cells
    return found


def _holders(evidence: Evidence, action: str) -> str:
    """What the action does to the holders of blocks, in words."""
    told = []
    for holder in HOLDERS[:-1]:
        deeds = evidence.holders.get(holder.name, {})
        told += [f"{deed}: {holder.name}" for deed in ("takes", "lets go") if action in deeds.get(deed, ())]
    return "<br>".join(told)
