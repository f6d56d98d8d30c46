"""The page of the properties: each in plain words, with a status that is computed from the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs.evidence import Answer, Evidence
from vllm_lifecycle.adapters.docs.view import View
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.machine import Property
from vllm_lifecycle.spec.lifecycles.block import FOLLOWS_ITS_LIFECYCLE
from vllm_lifecycle.spec.mutants import MUTANTS

KINDS = {
    "state": ("Safety: what is never the case", "state"),
    "step": ("Steps: what no single step does", "step"),
    "progress": ("Progress: what comes to pass", "progress"),
}
HEAD = """The status of each property is what the engines answered for this very specification (`{name}`, digest `{spec}`):
proof for any number of requests, blocks and steps; exhaustive exploration of small scopes in which its interesting case does
occur; and the known defects that it refutes when they are put into the specification. Lemmas say how the bookkeeping fits
together; proofs lean on them, and they are checked like the rest.
"""
STALE = """**The recorded evidence is about another specification** (digest `{old}`, this is `{new}`), so no status is shown.
`vllm-lifecycle docs build --evidence` asks the engines again.
"""


def page(view: View, evidence: Evidence, current: str) -> list[str]:
    """The lines of the page; `current` is the digest of the specification as it is."""
    known = evidence.spec == current
    shown = evidence if known else None
    lines = ["# Properties", "", f"For {view.title}.", ""]
    lines += (
        (HEAD if known else STALE)
        .format(name="evidence.json", spec=current, old=evidence.spec or "none", new=current)
        .splitlines()
    )
    lines += ["", *_searches(shown)] if shown else [""]
    properties = [*view.machine.properties, FOLLOWS_ITS_LIFECYCLE]
    for kind, (title, _) in KINDS.items():
        chosen = [p for p in properties if p.kind == kind]
        lines += [f"## {title}", ""]
        rows = (_summary(p, shown) for p in chosen)
        lines += md.table(("property", "proof", "exploration", "refutes"), rows)
        for prop in chosen:
            lines += _property(view, prop, shown)
    return lines


def _searches(evidence: Evidence) -> list[str]:
    rows = [
        (
            name,
            md.cell(s.scope),
            f"{s.states:,}",
            f"{s.transitions:,}",
            str(s.depth),
            "yes" if s.complete else "no",
        )
        for name, s in evidence.searches.items()
    ]
    header = ("scope", "bounds", "states", "transitions", "depth", "complete")
    return [
        "Scopes explored (states up to renaming of individuals, where symmetry applies):",
        "",
        *md.table(header, rows),
    ]


def _summary(prop: Property, evidence: Evidence | None) -> Sequence[str]:
    label = md.link(prop.name) + (" (lemma)" if prop.lemma else "")
    if evidence is None:
        return label, "-", "-", "-"
    kills = evidence.kills(prop.name)
    return (
        label,
        _word(evidence.proofs.get(prop.name)),
        _word(evidence.explored.get(prop.name)),
        md.several(len(kills), "mutant") if kills else "-",
    )


def _word(answer: Answer | None) -> str:
    return "not asked" if answer is None else answer.outcome


def _property(view: View, prop: Property, evidence: Evidence | None) -> Iterator[str]:
    yield f"### {prop.name}"
    yield ""
    yield md.cell(prop.doc)
    yield ""
    yield from md.fence("text", md.wrapped(text.claim(prop)))
    if prop.ids:
        yield f"- catalogue: {', '.join(prop.ids)}"
    if evidence is not None:
        yield from _status(view, prop, evidence)
    for defect, mutants in view.defects.items():
        for mutant in mutants:
            if mutant.breaks == prop.name:
                yield f"- falls in {view.title}: {defect}, {md.cell(mutant.doc)}"
    yield ""


def _status(view: View, prop: Property, evidence: Evidence) -> Iterator[str]:
    proof, explored = evidence.proofs.get(prop.name), evidence.explored.get(prop.name)
    if proof is None:
        yield "- proof: not asked, for want of a rank; see the exploration"
    else:
        extent = (
            f"{proof.scope}; {md.several(proof.obligations, 'obligation')}, {md.several(proof.seeds, 'seed')}"
        )
        yield f"- proof: **{proof.outcome}** ({extent}, {proof.engine})"
    if explored is None:
        yield "- exploration: not asked"
    else:
        where = f"in the scopes {explored.scope}" if explored.holds else explored.reason
        yield f"- exploration: **{explored.outcome}** {md.cell(where)}"
    for answer in (proof, explored):
        for assumption in answer.assumptions if answer else ():
            yield f"- assumes{' (exploration)' if answer is explored else ''}: {md.cell(assumption)}"
        if answer and not answer.holds and answer.reason:
            yield f"- why: {md.cell(answer.reason)}"
    case = evidence.examples.get(f"can_reach_the_case_of_{prop.name}")
    if case is not None:
        ways = ", ".join(view.link(a) for a in case.actions)
        yield f"- its case occurs after: {ways}"
    for name, fate in evidence.kills(prop.name).items():
        doc = MUTANTS[name].doc if name in MUTANTS else ""
        yield f"- refutes `{name}` in {md.several(fate.length, 'step')}: {md.cell(doc)}"
