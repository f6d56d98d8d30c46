"""A finding as a file that can be replayed elsewhere: what `--save` writes and `replay` reads.

The JSON form holds the target, the scope and the events as data, and for people the sequence as it was printed.  Reading it
back checks every field against the types of the vocabulary, so a file that was edited or cut is one line, never a traceback.
Rejected: pickling (not readable, not safe to read); reading what looks right and failing inside vLLM.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from .events import Event
from .report import Finding
from .scope import Scope

MARK = "vllm-lifecycle finding 1"
"""First entry of every saved finding: what the file is, and the version of its form."""
LARGEST = 10_000
"""No number of a scope or an event is larger: a file is not a way to exhaust the memory."""
EVENTS: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Event)}


class NotAFinding(ValueError):
    """The text is not a saved finding; the message is one line."""


@dataclass(frozen=True)
class Saved:
    """What a replay needs to know, and what it tells."""

    claim: str
    target: str
    scope: Scope
    events: tuple[Event, ...]
    version: str = ""
    site: str = ""
    fault: str = "scheduler"
    message: str = ""

    @classmethod
    def of(cls, finding: Finding) -> Saved:
        """The part of a finding that is replayed."""
        return cls(
            finding.claim,
            finding.target,
            finding.scope,
            finding.events,
            finding.version,
            finding.site,
            finding.fault,
            finding.message,
        )


def dump(finding: Finding) -> str:
    """The JSON text of a finding."""
    return json.dumps({"format": MARK, **finding.to_json()}, indent=1, ensure_ascii=False) + "\n"


def load(text: str) -> Saved:
    """Read a saved finding; raises NotAFinding."""
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise NotAFinding(f"not a saved finding: no JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != MARK:
        raise NotAFinding(f'not a saved finding: it does not begin with "format": "{MARK}"')
    events = _typed("events", data.get("events"), list[dict[str, Any]])
    return Saved(
        claim=_typed("property", data.get("property"), str),
        target=_typed("target", data.get("target"), str),
        scope=_object("scope", data.get("scope"), Scope),
        events=tuple(_event(f"events[{i}]", event) for i, event in enumerate(events)),
        version=_typed("version", data.get("version", ""), str),
        site=_typed("site", data.get("site", ""), str),
        fault=_typed("fault", data.get("fault", "scheduler"), str),
        message=_typed("message", data.get("message", ""), str),
    )


def _event(where: str, data: dict[str, Any]) -> Event:
    values = dict(data)
    name = values.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise NotAFinding(f"not a saved finding: {where}.event is {name!r}: one of {', '.join(EVENTS)}")
    made: Event = _object(where, values, EVENTS[name])
    return made


def _object(where: str, data: object, cls: type[Any]) -> Any:
    """One frozen row from plain data: every name known, every value of its type and of sane size."""
    known = {f.name for f in dataclasses.fields(cls)}
    for name in data if isinstance(data, dict) else ():
        if name not in known:
            raise NotAFinding(f"not a saved finding: {where} has no {name!r}: is it from a later release?")
    _bounded(where, data)
    return _typed(where, data, cls)


def _bounded(where: str, data: object) -> None:
    match data:
        case bool() | str():
            return
        case int() | float() if not -LARGEST <= data <= LARGEST:
            raise NotAFinding(f"not a saved finding: {where} is larger than {LARGEST}")
        case dict():
            for name, value in data.items():
                _bounded(f"{where}.{name}", value)
        case list():
            for i, value in enumerate(data):
                _bounded(f"{where}[{i}]", value)


def _typed(where: str, data: object, kind: Any) -> Any:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        raise NotAFinding(f"not a saved finding: {where}{at.rstrip('`')}: {what}") from None
