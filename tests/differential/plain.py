"""Values of vLLM as plain data, and where two of them differ.

Order counts: of lists and also of dictionaries, because the runner and the engine walk them.  Only time stamps are left out.
What both schedulers were given as one object (sampling parameters, images, adapters) is compared by identity.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

TIMES = frozenset({"timestamp", "ts", "lifetime_seconds", "idle_seconds", "reuse_gaps_seconds"})
"""Fields that hold times."""
ATOMS = (int, str, bool, float, bytes, type(None))
MISSING = "<nothing>"


class Same:
    """An object that both sides were given; equal when it is the same one."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}>"


def _itself(value: Any) -> Any:
    return value


def _list(value: Any) -> Any:
    if value and type(value[0]) is int:
        return list(value)
    return [plain(v) for v in value]


def _tuple(value: Any) -> Any:
    return tuple(plain(v) for v in value)


def _set(value: Any) -> Any:
    return {"set": sorted(value, key=str)}


def _dict(value: Any) -> Any:
    return {k if type(k) in ATOMS else str(k): plain(v) for k, v in value.items()}


def _array(value: Any) -> Any:
    return {"array": (str(value.dtype), tuple(value.shape), value.tolist())}


def _fields(cls: type[Any]) -> Callable[[Any], Any]:
    names = [f.name for f in dataclasses.fields(cls) if f.name not in TIMES]
    return lambda value: {name: plain(getattr(value, name)) for name in names}


def _struct(cls: type[Any]) -> Callable[[Any], Any]:
    names = [name for name in cls.__struct_fields__ if name not in TIMES]
    return lambda value: {name: plain(getattr(value, name)) for name in names}


SHARED = frozenset({"SamplingParams", "PoolingParams", "MultiModalFeatureSpec", "LoRARequest"})


def _block_state(value: Any) -> Any:
    """The blocks that a connector is shown: looked up, as it would."""
    found = {rid: plain(value.resolve_block_ids(rid)) for rid in sorted(value.req_ids)}
    return {"blocks": found, "boundary_state_offloads": plain(value.boundary_state_offloads)}


def _reader(cls: type[Any]) -> Callable[[Any], Any]:
    if cls is Same:
        return _itself
    if cls.__name__ in SHARED:
        return Same
    if issubclass(cls, enum.Enum):
        return lambda value: value.name
    if issubclass(cls, ATOMS):
        return _itself
    if cls.__name__ == "ConstantList":
        return lambda value: list(value)
    if cls.__name__ == "KVConnectorBlockState":
        return _block_state
    if cls.__name__ == "Request":
        return lambda value: f"<request {value.request_id}>"
    if hasattr(cls, "__struct_fields__"):
        return _struct(cls)
    if dataclasses.is_dataclass(cls):
        return _fields(cls)
    if issubclass(cls, tuple):
        return _tuple
    if issubclass(cls, (list, deque)):
        return _list
    if issubclass(cls, (set, frozenset)):
        return _set
    if issubclass(cls, Mapping):
        return _dict
    if hasattr(cls, "tolist"):
        return _array
    return Same


_READERS: dict[type[Any], Callable[[Any], Any]] = {}


def plain(value: Any) -> Any:
    """The value as dictionaries, lists, tuples and atoms; a copy, so that later changes do not show."""
    cls = type(value)
    read = _READERS.get(cls)
    if read is None:
        read = _READERS[cls] = _reader(cls)
    return read(value)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One place at which two values differ."""

    path: str
    reference: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}: reference {_brief(self.reference)}   ours {_brief(self.ours)}"


def _brief(value: Any, limit: int = 160) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."


def differences(reference: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    """Every innermost place at which two plain values differ."""
    if type(reference) is not type(ours):
        yield Difference(path, reference, ours)
    elif isinstance(reference, dict):
        yield from _in_dicts(reference, ours, path)
    elif isinstance(reference, (list, tuple)) and not _flat(reference, ours):
        if len(reference) != len(ours):
            yield Difference(path, reference, ours)
        else:
            for i, (a, b) in enumerate(zip(reference, ours, strict=True)):
                if a != b:
                    yield from differences(a, b, f"{path}[{i}]")
    elif reference != ours:
        yield Difference(path, reference, ours)


def _flat(*values: Any) -> bool:
    """Whether sequences hold only atoms: then they are shown as a whole."""
    return all(type(v) in ATOMS for value in values for v in value)


def _in_dicts(reference: dict[Any, Any], ours: dict[Any, Any], path: str) -> Iterator[Difference]:
    if list(reference) != list(ours) and set(reference) == set(ours):
        yield Difference(f"{path} (order)", list(reference), list(ours))
    for key in [*reference, *(k for k in ours if k not in reference)]:
        a, b = reference.get(key, MISSING), ours.get(key, MISSING)
        if a is MISSING or b is MISSING or a != b or type(a) is not type(b):
            yield from differences(a, b, f"{path}.{key}" if path else str(key))
