"""`explore_class`: will this scheduler class leak, corrupt or hang?

Runs a portfolio of scopes on one class, shrinks and deduplicates what falls, and names the upstream line.  Raises
`config.Unusable` or `correspondence.MissingSeam` (one line each) when the target cannot be explored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .blame import call_site
from .config import STOCK, Unusable, Workshop
from .play import Failure
from .portfolio import PORTFOLIO
from .report import Finding, tell
from .scope import Scope
from .search import Coverage, Progress, Search
from .shrink import shrink


@dataclass(frozen=True)
class Exploration:
    """The findings, and what was covered to get them."""

    target: str
    version: str
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]


def explore(
    target: str = STOCK,
    scopes: Sequence[Scope] = PORTFOLIO,
    seed: int = 0,
    seconds: float = 240.0,
    progress: Progress | None = None,
) -> Exploration:
    """Explore a class in several scopes; each gets its share of the seconds.

    A scope whose configuration the class refuses is passed over and says so in the coverage; when all are refused,
    Unusable is raised.
    """
    total = sum(s.share for s in scopes)
    found: dict[tuple[str, str], Finding] = {}
    coverage: list[Coverage] = []
    version = ""
    refused: list[Unusable] = []
    for scope in scopes:
        try:
            shop = Workshop(target, scope)
            shop.scheduler()
        except Unusable as why:
            refused.append(why)
            coverage.append(Coverage(scope.name, cut_by=f"not built: {why}"))
            continue
        version = shop.version
        search = Search(shop, seed, progress)
        harvest = search.run(seconds * scope.share / total)
        coverage.append(harvest.coverage)
        for failure in sorted(harvest.failures.values(), key=lambda f: len(f.events)):
            finding = conclude(shop, target, failure)
            known = found.get(finding.key)
            if known is None or _better(finding, known):
                found[finding.key] = finding
    if len(refused) == len(scopes):
        raise refused[0]
    order = sorted(found.values(), key=lambda f: (f.fault != "scheduler", f.claim, len(f.events)))
    return Exploration(target, version, tuple(order), tuple(coverage))


def conclude(shop: Workshop, target: str, failure: Failure) -> Finding:
    """Minimise one failure and tell it."""
    small = shrink(shop, failure)
    return tell(shop, target, small, call_site(shop, small))


def _better(new: Finding, known: Finding) -> bool:
    """A sequence without a breach beats one with; then the shorter one wins."""
    return (new.fault != "scheduler", len(new.events)) < (known.fault != "scheduler", len(known.events))


def explore_class(
    target: str = STOCK, scope: Scope | None = None, seed: int = 0, seconds: float = 240.0
) -> list[Finding]:
    """The findings on one class, in one scope or in the whole portfolio."""
    return list(explore(target, (scope,) if scope else PORTFOLIO, seed, seconds).findings)


def main() -> int:
    """Explore the stock scheduler and print what was found; for trying out (the command line has its own entry)."""
    import sys

    began = time.monotonic()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 240.0
    result = explore(sys.argv[2] if len(sys.argv) > 2 else STOCK, seconds=seconds)
    for finding in result.findings:
        print(finding.text(), end="\n\n")
    for line in result.coverage:
        print(line)
    print(f"{len(result.findings)} findings on vLLM {result.version} in {time.monotonic() - began:.0f} s")
    return 2 if result.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
