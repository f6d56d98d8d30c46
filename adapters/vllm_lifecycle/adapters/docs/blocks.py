"""Evidence for the block lifecycle, which no variable keeps: its successor list is proved, and each of its edges is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from vllm_lifecycle.spec import scopes
from vllm_lifecycle.spec.check import coverage
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.spec.lifecycles.block import EDGES, FOLLOWS_ITS_LIFECYCLE
from vllm_lifecycle.spec.lifecycles.system import SYSTEM

_SHARED_IN_STEPS = replace(
    scopes.parse("loads"),
    name="blocks in steps",
    sizes=dict(zip(scopes.AXES, (1, 2, 2, 1), strict=True)),
    constants={**scopes.parse("loads").constants, "max_want": 2, "pool_blocks": 2},
    features=("core", "prefix", "load", "preemption", "reset"),
    doc="a block that only a step holds is found by its hash",
)
SCOPES = (scopes.parse("everything"), scopes.parse("loads"), _SHARED_IN_STEPS)
"""Scopes of the whole state which together show every edge."""
TITLE = "the block lifecycle"


def verdicts(progress: Callable[[str], None]) -> Iterator[Verdict]:
    """The proof of the successor list, and the explorations in which its edges are looked for."""
    from vllm_lifecycle.spec.check.explicit.search import explore
    from vllm_lifecycle.spec.check.induction.prove import prove_property

    name = FOLLOWS_ITS_LIFECYCLE.name
    whole = replace(SYSTEM, properties=(*SYSTEM.properties, FOLLOWS_ITS_LIFECYCLE), _index={})
    progress("proof of the successor list")
    yield from (v for v in prove_property(whole, name).verdicts if v.claim == name)
    runs: list[coverage.Run] = []
    missing = {w.name: w for w in EDGES}
    for scope in SCOPES:
        progress(f"{len(missing)} edges to find, scope {scope.name}")
        found = explore(
            scope.machine(SYSTEM),
            scope.domain,
            [FOLLOWS_ITS_LIFECYCLE],
            list(missing.values()),
            symmetry=scopes.AXES,
            scope=str(scope),
        )
        runs.append(coverage.Run(scope.name, found.verdicts))
        told = [v for v in found.verdicts if v.claim == name or v.outcome is Outcome.HOLDS]
        for verdict in told:
            missing.pop(verdict.claim, None)
        yield from told
    about = replace(SYSTEM, properties=(FOLLOWS_ITS_LIFECYCLE,), witnesses=EDGES, _index={})
    yield from coverage.across(about, runs)
