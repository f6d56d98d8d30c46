"""Chooses from a release's own metadata the requirements that its scheduler needs."""

import re
from collections.abc import Iterable

_NAME = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?")


def requirement_name(line: str) -> str:
    """The normalised distribution name of one `Requires-Dist` line; ValueError when there is none."""
    match = _NAME.match(line)
    if match is None:
        raise ValueError(f"not a requirement: {line!r}")
    return re.sub(r"[-_.]+", "-", match.group(1)).lower()


def choose(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    """The lines whose name is among `names`, without extras and without lines that belong to an extra.

    Version limits and environment markers stay in the line: pip judges them.
    """
    wanted = set(names)
    kept = (line for line in lines if "extra ==" not in line and requirement_name(line) in wanted)
    return [_NAME.sub(lambda m: m.group(1), line).strip() for line in kept]
