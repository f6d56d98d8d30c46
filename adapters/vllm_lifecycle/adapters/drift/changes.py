"""What changed between the facts of two releases, in words; the newer one is never judged here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from vllm_lifecycle.adapters.drift.facts import Facts, Method
from vllm_lifecycle.adapters.drift.known import meaning
from vllm_lifecycle.adapters.drift.seams import CONNECTOR, SUPPORTED, calls, hooks, rows_for


@dataclass(frozen=True, slots=True)
class Change:
    """One change: of what kind, of what, and how."""

    kind: Literal["status", "assignment", "method", "seam"]
    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


def changes(old: Facts, new: Facts) -> Iterator[Change]:
    """All changes of statuses, of places that assign them, and of the methods on the seams."""
    yield from _statuses(old.statuses, new.statuses)
    yield from _assignments(old, new)
    yield from _ways(old, new)
    told: set[tuple[str, str]] = set()
    for cls in (*SUPPORTED, CONNECTOR):
        if cls in old.classes and cls in new.classes:
            for change in _methods(cls, old.classes[cls], new.classes[cls]):
                inherited = (change.what.rpartition(".")[2], change.how)
                if inherited not in told:
                    told.add(inherited)
                    yield change


def _statuses(old: Iterable[str], new: Iterable[str]) -> Iterator[Change]:
    before, after = list(old), list(new)
    gone = [n for n in before if n not in after]
    for name in (n for n in after if n not in before):
        earlier = next((g for g in gone if meaning(g) is not None and meaning(g) is meaning(name)), None)
        if earlier is None:
            yield Change("status", name, "added")
        else:
            gone.remove(earlier)
            yield Change("status", name, f"renamed, was {earlier}")
    yield from (Change("status", name, "gone") for name in gone)


def _assignments(old: Facts, new: Facts) -> Iterator[Change]:
    def key(facts: Facts) -> dict[tuple[str, str], str]:
        # A place is a function, wherever its module went; a renamed status is the same one.
        return {(a.function, str(meaning(a.target) or a.target)): a.target for a in facts.assignments}

    before, after = key(old), key(new)
    for place, word in (
        (after.keys() - before.keys(), "assigns"),
        (before.keys() - after.keys(), "no longer assigns"),
    ):
        for function, target in sorted(place):
            name = (after if word == "assigns" else before)[function, target]
            yield Change("assignment", function, f"{word} {name}")


def _ways(old: Facts, new: Facts) -> Iterator[Change]:
    """Facts of the correspondence tables that are observed in another way, or that came or went."""
    found: dict[Change, None] = {}
    for cls in (c for c in SUPPORTED if c in old.observed and c in new.observed):
        before, after = old.observed[cls], new.observed[cls]
        for fact in dict.fromkeys((*before, *after)):
            was, now = before.get(fact), after.get(fact)
            if was != now:
                how = f"observed by {now}" if now else "cannot be observed"
                found[Change("seam", fact, how + (f", was {was}" if was else ", was not there"))] = None
    yield from found


def _methods(cls: str, old: dict[str, Method], new: dict[str, Method]) -> Iterator[Change]:
    short = cls.rpartition(":")[2]
    for name in seam_methods(cls):
        before, after = old.get(name), new.get(name)
        if before is None and after is not None:
            yield Change("method", f"{short}.{name}", f"added, {_call(after)}")
        elif before is not None and after is None:
            yield Change("method", f"{short}.{name}", "gone")
        elif before is not None and after is not None:
            yield from _shape(f"{short}.{name}", before, after)


def _shape(what: str, before: Method, after: Method) -> Iterator[Change]:
    if before.parameters != after.parameters:
        added = [p.rstrip("=") for p in after.parameters if p not in before.parameters]
        gone = [p.rstrip("=") for p in before.parameters if p not in after.parameters]
        parts = [
            f"argument added: {', '.join(added)}" * bool(added),
            f"argument gone: {', '.join(gone)}" * bool(gone),
        ]
        yield Change("method", what, "; ".join(filter(None, parts)) or "order of arguments changed")
    if before.returns != after.returns:
        yield Change(
            "method", what, f"returns {' or '.join(after.returns)}, was {' or '.join(before.returns)}"
        )


def _call(method: Method) -> str:
    return f"({', '.join(method.parameters)})"


@cache
def seam_methods(cls: str) -> tuple[str, ...]:
    """The methods of a class that the adapters call or read."""
    if cls == CONNECTOR:
        return hooks()
    read = [
        w.removesuffix("()") for r in rows_for(cls) if r.of == "scheduler" for w in r.ways if "." not in w
    ]
    return tuple(dict.fromkeys([*(c.method for c in calls()), *read]))
