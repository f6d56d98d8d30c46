"""Releases side by side, and the difference between two of them: states, features, transitions, sources, known defects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs.moves import Row
from vllm_lifecycle.adapters.docs.view import OURS, View
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.profiles import PROFILES, profile


def page(view: View) -> list[str]:
    """The page that compares all releases, as part of the pages of one view."""
    views = [View(p) for p in PROFILES.values()]
    names = [v.profile.release for v in views if v.profile]
    lines = ["# Releases", "", "What each release has of the lifecycles, and what it calls them.", ""]
    lines += ["## States of a request", ""]
    states = [s for s in Status if s not in OURS]
    lines += md.table(
        ("state", *names),
        ([md.code(s.name), *(md.code(v.name(s)) if v.has(s) else "-" for v in views)] for s in states),
    )
    lines += [f"Without a status anywhere: {md.codes(s.name for s in Status if s in OURS)}.", ""]
    lines += ["## Features", ""]
    lines += md.table(
        ("feature", *names, "its actions"),
        (
            [f, *("yes" if f in v.machine.features else "-" for v in views), _actions_of(view, f)]
            for f in SYSTEM.features
        ),
    )
    lines += ["## Known defects that were run on the release, as variants of the specification", ""]
    defects = list(dict.fromkeys(d for v in views for d in v.defects))
    lines += md.table(
        ("defect", "what breaks", *names),
        ([d, _breaks(d, views), *("yes" if d in v.defects else "-" for v in views)] for d in defects),
    )
    lines += ["Two releases in more detail: `docs diff --from 0.13.0 --to 0.32.0`.", ""]
    return lines


def _actions_of(view: View, feature: str) -> str:
    return ", ".join(view.link(a.name) for a in SYSTEM.actions if a.feature == feature)


def _breaks(defect: str, views: Iterable[View]) -> str:
    mutants = next(v.defects[defect] for v in views if defect in v.defects)
    return ", ".join(dict.fromkeys(md.link(m.breaks, "properties.md") for m in mutants))


def diff(old: str, new: str, never: frozenset[Row] = frozenset()) -> list[str]:
    """What the second release changed; DefinitionError for a release without a profile."""
    one, two = View(profile(old), never), View(profile(new), never)
    lines = [f"# From {one.title} to {two.title}", ""]
    sections = (
        ("States of a request", _states(one, two)),
        ("Features", _sets(one.machine.features, two.machine.features, "feature")),
        ("Transitions", _transitions(one, two)),
        ("Where the behaviour is found in the source", _sources(one, two)),
        ("Known defects", _defects(one, two)),
    )
    for title, found in sections:
        lines += [f"## {title}", "", *(list(found) or ["No difference."]), ""]
    return lines


def _states(one: View, two: View) -> Iterator[str]:
    for state in Status:
        before = one.name(state) if one.has(state) and state not in OURS else None
        after = two.name(state) if two.has(state) and state not in OURS else None
        if before and after and before != after:
            yield f"- renamed: `{before}` is now `{after}`"
        elif before and not after:
            yield f"- gone: `{before}`"
        elif after and not before:
            yield f"- added: `{after}`"


def _sets(one: Iterable[str], two: Iterable[str], what: str) -> Iterator[str]:
    before, after = list(one), list(two)
    yield from (f"- {what} added: {x}" for x in after if x not in before)
    yield from (f"- {what} gone: {x}" for x in before if x not in after)


def _transitions(one: View, two: View) -> Iterator[str]:
    for name in one.lifecycles:
        rows = [
            {(v.name(r.source), v.name(r.target), r.action): r for r in v.lifecycles[name].rows}
            for v in (one, two)
        ]
        unnamed = [{(r.source, r.target, r.action) for r in v.lifecycles[name].rows} for v in (one, two)]
        for number, word in ((1, "added"), (0, "gone")):
            for (source, target, action), row in rows[number].items():
                if (row.source, row.target, row.action) not in unnamed[1 - number]:
                    yield f"- {name} {word}: `{source}` to `{target}` by `{action}`"


def _sources(one: View, two: View) -> Iterator[str]:
    for name in (a for a in one.actions if a in two.actions):
        before, after = one.sources(one.actions[name]), two.sources(two.actions[name])
        if [p for _, p in before] != [p for _, p in after]:
            told = [md.code(p) for _, p in before], [md.code(p) for _, p in after]
            yield f"- `{name}`: {', '.join(told[0]) or 'not there'}, now {', '.join(told[1]) or 'not there'}"


def _defects(one: View, two: View) -> Iterator[str]:
    for word, here, there in (("no longer there", one, two), ("new", two, one)):
        for defect, mutants in here.defects.items():
            if defect not in there.defects:
                yield f"- {word}: {defect}, {'; '.join(md.cell(m.doc) for m in mutants)}"
