"""`explore_class`: will this scheduler class leak, corrupt or hang?

Runs a portfolio of scopes on one class, shrinks and deduplicates what falls, and names the upstream line.  Raises
`config.Unusable` or `correspondence.MissingSeam` (one line each) when the target cannot be explored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from .blame import call_site
from .config import STOCK, Unusable, Workshop, load_class
from .correspondence import MissingSeam
from .extension import extension_of
from .play import Failure
from .report import Finding, tell
from .scope import Scope
from .search import HANGS, Coverage, Progress, Search
from .shrink import shrink
from .target import build, check_target
from .walks import Walks, check_hypothesis

SEARCH_PART = 0.75
"""Part of a scope's time that goes into searching; the rest is for making the findings small."""
LEAST_SECONDS = 0.3
"""A scope is searched at least this long, however little time there is."""


@dataclass(frozen=True)
class Exploration:
    """The findings, and what was covered to get them."""

    target: str
    version: str
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]


def explore(
    target: str = STOCK,
    scopes: Sequence[Scope] = (),
    seed: int = 0,
    seconds: float = 240.0,
    progress: Progress | None = None,
    examples: int = 0,
) -> Exploration:
    """Explore a class in several scopes (its family's portfolio when none is given); `share` shares out `seconds`.

    With `examples`, each scope is walked by Hypothesis that many times instead (see `walks`; extra `test`).
    Searching and minimising count, importing vLLM does not (it takes 5 to 20 seconds, once).

    A scope whose configuration the class refuses is passed over and says so in the coverage; when all are refused,
    Unusable is raised.  On Ctrl-C what was found so far is returned, and the coverage says "interrupted".
    """
    if examples:
        check_hypothesis()
    scopes = _warm_up(target, scopes)
    end = time.monotonic() + seconds
    found: dict[tuple[str, ...], Finding] = {}
    coverage: list[Coverage] = []
    refused: list[Unusable] = []
    version = ""
    for number, scope in enumerate(scopes):
        left = sum(s.share for s in scopes[number:])
        slice_end = time.monotonic() + max(end - time.monotonic(), 0.0) * scope.share / left
        try:
            shop = Workshop(target, scope)
            build(shop)
        except Unusable as why:
            refused.append(why)
            coverage.append(Coverage(scope.name, cut_by=f"not built: {why}"))
            continue
        version = shop.version
        search = Walks(shop, seed, progress, examples) if examples else Search(shop, seed, progress)
        try:
            search.run(max(LEAST_SECONDS, (slice_end - time.monotonic()) * SEARCH_PART))
        except KeyboardInterrupt:
            search.harvest.coverage.cut_by = "interrupted"
            slice_end = end = time.monotonic()
        coverage.append(search.harvest.coverage)
        for failure in sorted(search.harvest.failures.values(), key=lambda f: len(f.events)):
            finding = conclude(shop, target, failure, slice_end)
            known = found.get(finding.key)
            if known is None or _better(finding, known):
                found[finding.key] = finding
        if search.harvest.coverage.cut_by in ("interrupted", HANGS):
            coverage += [
                Coverage(s.name, cut_by=f"not searched: {coverage[-1].cut_by}") for s in scopes[number + 1 :]
            ]
            break
    if len(refused) == len(scopes):
        raise refused[0]
    order = sorted(found.values(), key=lambda f: (f.fault != "scheduler", f.claim, len(f.events)))
    return Exploration(target, version, tuple(order), tuple(coverage))


def _warm_up(target: str, scopes: Sequence[Scope]) -> Sequence[Scope]:
    """Import what is imported once; what the first scope's refusal means is decided later.  The scopes to explore."""
    check_target(target)
    scopes = scopes or extension_of(load_class(target)).portfolio()
    with suppress(Unusable):
        build(Workshop(target, scopes[0]))
    return scopes


def conclude(shop: Workshop, target: str, failure: Failure, until: float = math.inf) -> Finding:
    """Minimise one failure and tell it; after `until` (monotonic seconds) it is told as far as it got."""
    small = shrink(shop, failure, until)
    return tell(shop, target, small, call_site(shop, small))


def _better(new: Finding, known: Finding) -> bool:
    """A sequence without a breach beats one with; then the shorter one wins."""
    return (new.fault != "scheduler", len(new.events)) < (known.fault != "scheduler", len(known.events))


def explore_class(
    target: str = STOCK, scope: Scope | None = None, seed: int = 0, seconds: float = 240.0
) -> list[Finding]:
    """The findings on one class, in one scope or in the whole portfolio."""
    return list(explore(target, (scope,) if scope else (), seed, seconds).findings)


def main() -> int:
    """Explore the stock scheduler and print what was found; for trying out (the command line has its own entry)."""
    import sys

    began = time.monotonic()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 240.0
    try:
        result = explore(sys.argv[2] if len(sys.argv) > 2 else STOCK, seconds=seconds)
    except (Unusable, MissingSeam) as why:
        print(why, file=sys.stderr)
        return 1
    for finding in result.findings:
        print(finding.text(), end="\n\n")
    for line in result.coverage:
        print(line)
    print(f"{len(result.findings)} findings on vLLM {result.version} in {time.monotonic() - began:.0f} s")
    return 2 if result.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
