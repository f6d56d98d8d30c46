"""`explore_class`: will this scheduler class leak, corrupt or hang?

Runs a portfolio of scopes on one class, shrinks and deduplicates what falls, and names the upstream line.  Raises
`config.Unusable` or `correspondence.MissingSeam` (one line each) when the target cannot be explored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .blame import call_site
from .config import STOCK, Unusable, Workshop, load_class
from .correspondence import MissingSeam
from .extension import extension_of
from .parallel import Lost, Pool, can_fork
from .play import Failure
from .report import Finding, tell
from .scope import Scope
from .search import HANGS, Coverage, Progress, Search
from .shrink import shrink
from .target import build, check_target
from .walks import Walks, check_hypothesis

SEARCH_PART = 0.75
"""Part of a scope's time that goes into searching; the rest is for making the findings small."""
INTERRUPTED = "interrupted"
LEAST_SECONDS = 0.3
"""A scope is searched at least this long, however little time there is."""


@dataclass(frozen=True)
class Exploration:
    """The findings, and what was covered to get them."""

    target: str
    version: str
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]


@dataclass(frozen=True)
class _Part:
    """What the search of one scope gave."""

    coverage: Coverage
    findings: tuple[Finding, ...] = ()
    version: str = ""
    refused: str = ""
    """Why the class cannot be built in this scope, when it cannot."""

    @property
    def stops(self) -> bool:
        """Whether no further scope is worth beginning."""
        return self.coverage.cut_by in (INTERRUPTED, HANGS)


@dataclass(frozen=True)
class _Task:
    """The search of one scope."""

    target: str
    scope: Scope
    seed: int
    examples: int
    walks: int | None

    def __call__(self, tell: Progress, seconds: float) -> _Part:
        """Search, and make small what falls; Ctrl-C ends it early."""
        end = time.monotonic() + seconds
        try:
            shop = Workshop(self.target, self.scope)
            build(shop)
        except Unusable as why:
            return _Part(Coverage(self.scope.name, cut_by=f"not built: {why}"), refused=str(why))
        search = self._search(shop, tell)
        try:
            search.run(max(LEAST_SECONDS, seconds * SEARCH_PART))
        except KeyboardInterrupt:
            search.harvest.coverage.cut_by = INTERRUPTED
            end = time.monotonic()
        found = []
        for failure in sorted(search.harvest.failures.values(), key=lambda f: len(f.events)):
            tell(f"{self.scope.name}: making {len(search.harvest.failures)} kinds of failure small")
            try:
                found.append(conclude(shop, self.target, failure, end))
            except KeyboardInterrupt:  # told as it is, and the others too
                search.harvest.coverage.cut_by, search.harvest.coverage.complete = INTERRUPTED, False
                end = time.monotonic()
                found.append(conclude(shop, self.target, failure, end))
        return _Part(search.harvest.coverage, tuple(found), shop.version)

    def _search(self, shop: Workshop, tell: Progress) -> Search | Walks:
        if self.examples:
            return Walks(shop, self.seed, tell, self.examples)
        return Search(shop, self.seed, tell, self.walks)


@dataclass(frozen=True)
class _Sharing:
    """Shares out the time: each scope its share of what is left of all processes' time."""

    scopes: Sequence[Scope]
    end: float
    jobs: int

    def __call__(self, place: int, busy: Sequence[float]) -> float:
        """Seconds for the scope at that place, when the other processes are busy until then."""
        now = time.monotonic()
        free = self.jobs - len(busy)
        left = sum(max(self.end - max(until, now), 0.0) for until in (*busy, *[now] * free))
        scope = self.scopes[place]
        return min(max(self.end - now, 0.0), left * scope.share / sum(s.share for s in self.scopes[place:]))


def explore(
    target: str = STOCK,
    scopes: Sequence[Scope] = (),
    seed: int = 0,
    seconds: float = 240.0,
    progress: Progress | None = None,
    examples: int = 0,
    jobs: int = 1,
    walks: int | None = None,
) -> Exploration:
    """Explore a class in several scopes (its family's portfolio when none is given); `share` shares out `seconds`.

    With `examples`, each scope is walked by Hypothesis that many times instead (see `walks`; extra `test`).
    Searching and minimising count, importing vLLM does not (it takes 5 to 20 seconds, once).  `jobs` scopes at once are
    searched, each in a process of its own (see `parallel`); with one, in this process.  `walks` bounds the random walks
    of each scope, which otherwise fill its time; findings and counts then depend on nothing but the arguments, as long
    as no time cuts them off.

    A scope whose configuration the class refuses is passed over and says so in the coverage; when all are refused,
    Unusable is raised.  On Ctrl-C what was found so far is returned, and the coverage says "interrupted".
    """
    if examples:
        check_hypothesis()
    scopes = _warm_up(target, scopes)
    tell = progress or (lambda line: None)
    tasks = [_Task(target, scope, seed, examples, walks) for scope in scopes]
    jobs = min(jobs, len(scopes)) if can_fork() else 1
    seconds_for = _Sharing(scopes, time.monotonic() + seconds, jobs)
    parts: dict[int, _Part] = {}
    ended = INTERRUPTED
    for place, part in (
        _one_by_one(tasks, seconds_for, tell)
        if jobs == 1
        else Pool[_Part](jobs, tell).run(tasks, seconds_for, lambda part: part.stops)
    ):
        if isinstance(part, Lost):
            part = _Part(Coverage(scopes[place].name, cut_by=part.reason))
        parts[place] = part
        if part.stops:
            ended = part.coverage.cut_by
    return _together(target, scopes, parts, ended)


def _one_by_one(
    tasks: Sequence[_Task], seconds: _Sharing, tell: Progress
) -> Iterator[tuple[int, _Part | Lost]]:
    """The same without further processes."""
    for place, task in enumerate(tasks):
        part = task(tell, seconds(place, ()))
        yield place, part
        if part.stops:
            return


def _together(target: str, scopes: Sequence[Scope], parts: dict[int, _Part], ended: str) -> Exploration:
    """One result from those of the scopes, in the order of the scopes."""
    found: dict[tuple[str, ...], Finding] = {}
    coverage: list[Coverage] = []
    for place, scope in enumerate(scopes):
        part = parts.get(place) or _Part(Coverage(scope.name, cut_by=f"not searched: {ended}"))
        coverage.append(part.coverage)
        for finding in part.findings:
            known = found.get(finding.key)
            if known is None or _better(finding, known):
                found[finding.key] = finding
    refused = [part.refused for part in parts.values() if part.refused]
    if len(refused) == len(scopes):
        raise Unusable(parts[0].refused)
    order = sorted(found.values(), key=lambda f: (f.fault != "scheduler", f.claim, len(f.events)))
    version = next((part.version for part in parts.values() if part.version), "")
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
