"""What a user can do wrong, as one line that says the repair."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageProblem(Exception):
    """Something the user asked for cannot be done; the text is one line with the repair. Exit code 1."""


def unknown(what: str, given: str, known: Iterable[str], repair: str) -> UsageProblem:
    """The problem of a name that does not exist: near misses when there are any, else where the names are listed."""
    names = list(dict.fromkeys(known))
    near = (
        difflib.get_close_matches(given, names, n=3) or [n for n in names if given.lower() in n.lower()][:3]
    )
    hint = f"did you mean {' or '.join(near)}?" if near else repair
    return UsageProblem(f"unknown {what} {given!r}: {hint}")
