"""The report as SARIF 2.1.0, for code scanning: a rule for each property, a result for each verdict that does not hold.

Refuted is a `fail` at level error; not established is `open`, which by the standard has no level, so the invocation says it as
a warning too and counts as not successful. The fingerprint of a result has neither line numbers nor the sequence in it, so one
finding stays one alert from run to run and on every machine.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from vllm_lifecycle.adapters.report import places, words
from vllm_lifecycle.adapters.report.evidence import Shown
from vllm_lifecycle.adapters.report.model import Report
from vllm_lifecycle.adapters.report.places import Place
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "vllmLifecycleFinding/v1"
PACKAGES = "PACKAGES"
"""Base of paths that are not in the current folder: where packages are installed."""


def sarif(report: Report, version: str) -> str:
    """The JSON text of the log."""
    bad = [v for _, v in words.all_verdicts(report) if v.outcome is not Outcome.HOLDS]
    rules = list(dict.fromkeys(words.property_of(v) for _, v in words.all_verdicts(report)))
    run = {
        "tool": {
            "driver": {
                "name": "vllm-lifecycle",
                "version": version,
                "rules": [_rule(name) for name in rules],
            }
        },
        "automationDetails": {"id": f"vllm-lifecycle/{report.command}/"},
        "originalUriBaseIds": {PACKAGES: {"description": {"text": "Where Python packages are installed."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, bad)],
        "results": list(_results(bad, rules)),
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, ensure_ascii=False)


def _rule(name: str) -> dict[str, Any]:
    meaning = words.meanings().get(name, f"{name}.")
    defined = places.defined(name)
    return {
        "id": name,
        "name": name,
        "shortDescription": {"text": meaning},
        "help": {"text": f"{meaning} Defined in {defined}; `vllm-lifecycle explain {name}` tells more."},
        "defaultConfiguration": {"level": "error"},
    }


def _invocation(report: Report, bad: Iterable[Verdict]) -> dict[str, Any]:
    unsettled = [v for v in bad if v.outcome is Outcome.NOT_ESTABLISHED]
    return {
        "executionSuccessful": report.outcome is not Outcome.NOT_ESTABLISHED,
        "exitCode": report.exit_code,
        "exitCodeDescription": report.outcome.value,
        "toolExecutionNotifications": [
            {"level": "warning", "message": {"text": _message(verdict)}} for verdict in unsettled
        ],
    }


def _results(bad: Iterable[Verdict], rules: list[str]) -> Iterable[dict[str, Any]]:
    seen: Counter[tuple[str, ...]] = Counter()
    for verdict in sorted(bad, key=lambda v: (known_as(v), places.place(v).line)):
        name, known = words.property_of(verdict), known_as(verdict)
        seen[known] += 1
        refuted = verdict.outcome is Outcome.REFUTED
        yield {
            "ruleId": name,
            "ruleIndex": rules.index(name),
            "kind": "fail" if refuted else "open",
            "level": "error" if refuted else "none",
            "message": {"text": _message(verdict)},
            "locations": [_location(places.place(verdict))],
            "relatedLocations": [
                {
                    **_location(places.defined(name)),
                    "id": 1,
                    "message": {"text": "the property in the specification"},
                }
            ],
            "partialFingerprints": {FINGERPRINT: _digest((*known, str(seen[known])))},
            **_flow(verdict),
        }


def known_as(verdict: Verdict) -> tuple[str, ...]:
    """What a verdict has in common with itself in other runs: no lines, times, versions or sequences."""
    if isinstance(verdict, Shown) and verdict.known_as:
        return verdict.known_as
    return words.property_of(verdict), verdict.claim, re.split(r"[ /]", verdict.engine)[0], verdict.scope


def _digest(parts: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _message(verdict: Verdict) -> str:
    where = f" [{verdict.scope}]" if verdict.scope else ""
    return f"{verdict.outcome.value}: {verdict.claim}{where}. {verdict.reason}".strip()


def _location(place: Place) -> dict[str, Any]:
    file: dict[str, str] = {"uri": place.path} if place.here else {"uri": place.path, "uriBaseId": PACKAGES}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": file, "region": {"startLine": max(1, place.line)}}
    }
    if place.function:
        location["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    return location


def _flow(verdict: Verdict) -> dict[str, Any]:
    """The counterexample as a code flow: one step for each call."""
    if not verdict.trace:
        return {}
    steps = []
    for number, step in enumerate(verdict.trace, start=1):
        lines = words.trace_lines([step])
        text = "\n".join(
            [f"{number}. {step if step.params else step.action}", *(x.strip() for x in lines[1:])]
        )
        steps.append({"location": {"message": {"text": text}}, "executionOrder": number})
    return {"codeFlows": [{"threadFlows": [{"locations": steps}]}]}
