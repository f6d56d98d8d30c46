"""The page of the block lifecycle: its diagram and edges, each with an example that was found, and the custody matrix."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from itertools import pairwise

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs import mermaid
from vllm_lifecycle.adapters.docs.custody import HOLDERS
from vllm_lifecycle.adapters.docs.evidence import Evidence
from vllm_lifecycle.adapters.docs.view import View
from vllm_lifecycle.spec.lifecycles.block import EDGES, SUCCESSORS, BlockState
from vllm_lifecycle.spec.lifecycles.system import SYSTEM


def meanings() -> dict[str, str]:
    """What each state of a block means, as its definition says."""
    (definition,) = ast.parse(inspect.getsource(BlockState)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for row, told in pairwise(definition.body):
        match row, told:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(doc))):
                found[name] = doc
    return found


def page(view: View, evidence: Evidence) -> list[str]:
    """The lines of the page."""
    lines = ["# Lifecycle: block", "", f"For {view.title}.", ""]
    lines += [
        "No variable keeps what a block is: it follows from who holds it. A block is in the free pool exactly when nobody",
        "does. Where several hold it, the first of RECEIVING, HELD, SENDING, IN_STEP names it. An arrow is labelled with one",
        "action that takes it, on the shortest way that was found.",
        "",
    ]
    arrows = [
        mermaid.Arrow(x.name, y.name, tuple(way[-1:]))
        for (x, y), way in _edges(view, evidence)
        if way is not None
    ]
    pool = {BlockState.FREE.name, BlockState.EVICTABLE.name}
    parts = (
        mermaid.Part(
            "Into use, and from one use to another", tuple(a for a in arrows if a.target not in pool)
        ),
        mermaid.Part("Back to the pool, and within it", tuple(a for a in arrows if a.target in pool)),
    )
    for part in mermaid.split(parts):
        lines += [f"## {part.title}", ""]
        lines += md.fence("mermaid", mermaid.states(part.arrows, BlockState.FREE.name))
    lines += ["## States", ""]
    lines += md.table(("state", "meaning"), ([md.code(s.name), meanings()[s.name]] for s in BlockState))
    lines += ["## Who may hold a block, who takes it, and who lets go", ""]
    lines += _matrix(view, evidence)
    lines += ["## Edges", ""]
    return lines + md.table(("from", "to", "a shortest way there"), _ways(view, evidence))


def _edges(
    view: View, evidence: Evidence
) -> Iterator[tuple[tuple[BlockState, BlockState], tuple[str, ...] | None]]:
    """The edges with the actions of an example; None where the example needs what the release does not have."""
    witnesses = iter(EDGES)
    for x, following in SUCCESSORS.items():
        for y in BlockState:
            if y in following:
                example = evidence.examples.get(next(witnesses).name)
                way = example.actions if example else ()
                yield (x, y), way if set(way) <= view.actions.keys() else None


def _ways(view: View, evidence: Evidence) -> Iterator[Sequence[str]]:
    for (x, y), way in _edges(view, evidence):
        if way is None:
            continue
        links = ", ".join(view.link(a) for a in way)
        yield md.code(x.name), md.code(y.name), links or "not recorded: `docs build --evidence`"


def _matrix(view: View, evidence: Evidence) -> Iterator[str]:
    if not evidence.holders:
        yield "Not recorded: `docs build --evidence` asks the solver."
        yield ""
        return
    yield "Complete for any number of requests, blocks and steps: of every action that is not named in a cell the solver proved"
    yield "that it does not do so, and it has a state for every action that is."
    yield ""
    rows = []
    for holder in HOLDERS:
        deeds = evidence.holders[holder.name]
        cells = [
            ", ".join(view.link(a) for a in deeds[deed] if a in view.actions) or "-"
            for deed in ("takes", "lets go")
        ]
        rows.append([holder.name, SYSTEM.var(holder.variable).doc, *cells])
    yield from md.table(("holder", "meaning", "takes a block", "lets go of a block"), rows)
    takers = {
        a: h for h, deeds in evidence.holders.items() for a in deeds["lets go"] if h != HOLDERS[-1].name
    }
    silent = [a for a in takers if a not in evidence.holders[HOLDERS[-1].name]["takes"]]
    yield "Letting go frees a block only when nobody else holds it: the free pool takes it in the same action."
    if silent:
        yield f"Never the last to let go: {', '.join(md.link(a, 'actions.md') for a in silent if a in view.actions)}."
    yield ""
