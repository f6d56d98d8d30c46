"""The page of all actions: who takes them, what each requires and assigns, and what it does to the objects of every lifecycle."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_lifecycle.adapters.docs import markdown as md
from vllm_lifecycle.adapters.docs.lifecycles import cited
from vllm_lifecycle.adapters.docs.view import View
from vllm_lifecycle.spec.lang import text
from vllm_lifecycle.spec.lang.machine import Action, Fairness

HEAD = """# Actions

For {title}: {count} actions. An action is taken at once where everything that it requires holds. `x'` is the value of x after
the step; whatever is not assigned stays. What is chosen is chosen by whoever takes the action.
"""


def page(view: View) -> list[str]:
    """The lines of the page."""
    lines = [*HEAD.format(title=view.title, count=len(view.actions)).splitlines(), ""]
    for party in dict.fromkeys(a.by for a in view.actions.values()):
        lines += [f"## Taken by: {party}", ""]
        for action in view.actions.values():
            if action.by == party:
                lines += _action(view, action)
    return lines


def _action(view: View, action: Action) -> Iterator[str]:
    yield f"### {action.name}"
    yield ""
    yield md.cell(action.doc)
    yield ""
    params = ", ".join(f"{p.name}: {'set of ' if p.is_set else ''}{p.sort}" for p in action.params)
    yield f"- chosen: {md.code(params) if params else 'nothing'}"
    yield f"- feature: {action.feature}; fairness assumed: {_FAIR[action.fairness]}"
    for lifecycle, edge in view.moves(action.name):
        yield f"- {lifecycle.name}: `{view.name(edge.source)}` to `{view.name(edge.target)}`"
    yield f"- behaviour of: {cited(view, action)}"
    yield ""
    requires = [f"requires {term}{f'  ({why})' if why else ''}" for why, term in text.guards(action)]
    body = [part for line in (*requires, *text.updates(action)) for part in md.wrapped(line)]
    yield from md.fence("text", body or ["changes nothing"])


_FAIR = {
    Fairness.NONE: "none, it may never be taken",
    Fairness.WEAK: "weak, taken when it stays enabled",
    Fairness.STRONG: "strong, taken when it keeps becoming enabled",
}
