"""The feature table of the documentation, made from recorded differential runs: `python -m tests.differential.features`.

A record is what one release's run printed, as data (`python -m tests.differential --record FILE`); the table adds to it only
which group of workloads exercises which feature.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.differential.groups import AHEAD

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "differential"
PAGE = ROOT / "docs" / "features.md"

FEATURES: Mapping[int, tuple[str, tuple[str, ...], str]] = {
    1: ("continuous batching, token budget and slots", ("mixed",), "admitted, finished"),
    2: ("chunked prefill on and off, threshold for long prefills", ("chunking",), "prompt in chunks"),
    3: (
        "prefix caching: hits, eviction order, duplicate hashes, requests that do not read it",
        ("sharing",),
        "prefix hit",
    ),
    4: (
        "FCFS and priority, preemption by recompute, resumed requests",
        ("preemption",),
        "preempted, resumed",
    ),
    5: (
        "skipped waiting requests keep their place",
        ("grammar", "adapters", "loads"),
        "grammar, adapter, load in the step",
    ),
    6: (
        "speculative decoding: rejected drafts, look-ahead blocks, EAGLE",
        ("drafts", "asynchronous-drafts"),
        "drafts, drafts accepted, drafts rejected",
    ),
    7: (
        "asynchronous scheduling and pipeline parallelism",
        ("asynchronous", "pipeline"),
        "several in flight, preempted",
    ),
    8: (
        "structured output: grammar ready, late, failed; bitmask; draft validation",
        ("grammar",),
        "grammar, drafts",
    ),
    9: (
        "encoder inputs: compute budget, cache, chunking switch",
        ("encoder",),
        "encoder inputs, encoder input already there, encoder entries dropped",
    ),
    10: ("encoder-cache connector", ("encoder-transfer",), "encoder inputs, encoder input already there"),
    11: ("LoRA slot limit", ("adapters",), "adapter"),
    12: (
        "KV connector, synchronous and asynchronous loads, delayed free after finish",
        ("loads", "loads-between"),
        "load in the step, load between steps, load reported, send reported, transfer parameters",
    ),
    13: (
        "KV load failures, recompute and fail",
        ("load-failures",),
        "load in the step failed, load between steps failed, ended: error",
    ),
    14: ("pooling, stop conditions", ("pooling", "stops"), "pooling, ended: stop, ended: length"),
    15: (
        "abort and finish from outside in every state",
        ("aborts", "loads-between"),
        "aborted in flight, aborted during a load, preempted",
    ),
    16: ("finished-id notices to workers and per client", ("clients",), "another client, finished set"),
    17: (
        "prefix-cache reset, with and without forced preemption; connector reset",
        ("resets",),
        "reset, reset of what runs",
    ),
    18: (
        "cached-request data for the V1 and V2 runner",
        ("mixed", "second-runner", "pipeline"),
        "admitted, resumed",
    ),
    19: ("common-prefix blocks, hybrid models", ("sharing", "hybrid"), "prefix hit"),
    20: (
        "log probabilities, NaN counts, events, statistics, KV cache events",
        ("outputs", "statistics"),
        "log probabilities, NaN counts, statistics, connector statistics, cache events",
    ),
}
"""Number -> what it is, the groups of workloads that exercise it (asynchronously too), and what they have to reach."""


def mends(reference: type[Any]) -> dict[str, str]:
    """The mends of a reference, and the first line of what each says of itself."""
    return {
        cls.__name__: (cls.__doc__ or "").partition("\n")[0]
        for cls in reference.__mro__
        if cls.__module__.startswith("tests.differential.") and cls.__doc__ and cls is not reference
    }


def record(
    path: Path,
    release: str,
    scheduler: str,
    groups: list[Any],
    limits: list[tuple[str, str]],
    mended: Mapping[str, str],
) -> None:
    """Writes down what a run came to. `groups` are reports of run.py; `limits` what the class refuses, and what to do instead."""
    data = {
        "release": release,
        "scheduler": scheduler,
        "groups": {
            report.group: {
                "steps": report.steps,
                "unexplained": int(report.failure is not None),
                "intended": dict(sorted(report.rows.items())),
                "mended": dict(sorted(report.mended.items())),
                "reached": {name: count for name, count in sorted(report.met.items()) if count},
            }
            for report in groups
        },
        "mends": {
            name: mended[name]
            for name in sorted({name for report in groups for name in report.mended if report.mended[name]})
        },
        "refused": dict(limits),
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def refused(scheduler: type[Any]) -> list[tuple[str, str]]:
    """What a verified scheduler refuses, and what to do instead: of the configuration, of the KV cache, of single requests."""
    module = sys.modules[scheduler.__module__]
    limits = (
        *getattr(scheduler, "LIMITS", ()),
        *getattr(module, "CACHE", ()),
        *getattr(module, "REQUEST", ()),
    )
    return [(limit.feature, limit.instead) for limit in limits]


def exercising(names: tuple[str, ...], groups: Mapping[str, Any]) -> list[str]:
    """The groups of a feature, and their asynchronous counterparts."""
    return [*names, *(name + AHEAD for name in names if name + AHEAD in groups)]


def reached(groups: Mapping[str, Any], names: tuple[str, ...], wanted: str) -> dict[str, int]:
    """How often the groups of a feature reached what they have to."""
    return {
        what: sum(groups[name]["reached"].get(what, 0) for name in exercising(names, groups))
        for what in wanted.split(", ")
    }


def _worth(groups: Mapping[str, Any], names: tuple[str, ...], wanted: str) -> str:
    if any(name not in groups for name in names):
        return "not run"
    found = [groups[name] for name in exercising(names, groups)]
    steps = sum(group["steps"] for group in found)
    unexplained = sum(group["unexplained"] for group in found)
    if unexplained:
        return f"differs ({unexplained} unexplained)"
    met = ", ".join(f"{what} {count:,}" for what, count in reached(groups, names, wanted).items())
    return f"works: equal in {steps:,} steps ({met})"


def page(records: list[Mapping[str, Any]]) -> str:
    """The page as Markdown."""
    releases = [str(r["release"]) for r in records]
    lines = [
        "# What the verified scheduler does",
        "",
        "Generated by `python -m tests.differential.features` from recorded runs against vLLM's own scheduler: the same random",
        "workloads for both, every `SchedulerOutput` and every engine output compared. Where vLLM is wrong, the original is",
        "mended first (one named defect each), and the run goes on; anything else is listed as unexplained. Brackets: how often",
        "the runs reached what they are for. Groups whose name ends in `-ahead` are the same workloads, scheduled asynchronously",
        "(`VerifiedAsyncScheduler` against `AsyncScheduler`).",
        "",
        "| # | feature | " + " | ".join(f"vLLM {r}" for r in releases) + " |",
        "|---|---|" + "---|" * len(releases),
    ]
    for number, (what, names, wanted) in FEATURES.items():
        cells = " | ".join(_worth(r["groups"], names, wanted) for r in records)
        lines.append(f"| {number} | {what} | {cells} |")
    for r in records:
        groups = r["groups"]
        lines += [
            "",
            f"## vLLM {r['release']}",
            "",
            "| workloads | steps | unexplained | mended defects of the original, and how often each made a difference |",
            "|---|---|---|---|",
        ]
        for name, group in groups.items():
            told = {**group["intended"], **group["mended"]}
            mended = "; ".join(f"{what} ({count:,})" for what, count in told.items()) or "none"
            lines.append(f"| {name} | {group['steps']:,} | {group['unexplained']} | {mended} |")
        total = sum(group["steps"] for group in groups.values())
        lines += [
            "",
            f"In all {total:,} steps. Refused at start (or, for one request, when it is added), with one line:",
            "",
        ]
        lines += [f"- {feature}: {instead}" for feature, instead in r["refused"].items()]
        lines += [
            "",
            "Intended differences: defects of the original, mended for the comparison (numbers: public reports).",
            "",
        ]
        lines += [f"- {name}: {what}" for name, what in r["mends"].items()]
    return "\n".join(lines) + "\n"


def recorded() -> list[Mapping[str, Any]]:
    """The records in the repository, by release."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))]


if __name__ == "__main__":
    PAGE.write_text(page(recorded()), encoding="utf-8")
    sys.exit(0)
