"""`python -m vllm_lifecycle.adapters.drift record RELEASE PLACE`, `table FILE PLACE...`: what `scripts/drift-table` calls."""

from __future__ import annotations

import sys
from pathlib import Path

from vllm_lifecycle.adapters.drift.known import record
from vllm_lifecycle.adapters.drift.source import find_tree
from vllm_lifecycle.adapters.drift.table import table


def main(arguments: list[str]) -> int:
    """Record a known release, or write the table of several trees."""
    match arguments:
        case ["record", release, place]:
            print(record(release, find_tree(place)))
        case ["table", file, *places] if places:
            Path(file).write_text(table([find_tree(p) for p in places]), encoding="utf-8")
            print(f"{file}: {len(places)} releases")
        case _:
            print(__doc__, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
