"""Profiles: what a release has of the lifecycles, what it calls them, and which known defects its code shows.

A profile restricts the specification to the features of a release (a scope may restrict further) and names its states in
the release's own words. `defects` are ids of the catalogues that were run on that release and misbehaved; each stands for
the mutants of the specification with that id. The specification itself is what the releases should do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.vocabulary import Status

_COMMON = (
    "core", "grammar", "load", "load_failure", "sync_load", "send", "loss", "prefix", "preemption", "window", "reset",
    "encoder", "empty_output", "contract", "sleep",
)  # fmt: skip
_HERE_ONLY = frozenset({Status.FREED, Status.WAITING_FOR_TRANSFER_FREE})
_CHUNKS_ONLY = frozenset({Status.WAITING_FOR_CHUNK})
_SESSIONS_ONLY = frozenset({Status.WAITING_FOR_STREAMING_REQ})
_NEW_REASONS = frozenset({Status.FINISHED_REPETITION})


@dataclass(frozen=True)
class Profile:
    """One release: `features` of the specification, names of `statuses` where they differ, `missing` ones, `defects`."""

    release: str
    package: str
    features: tuple[str, ...]
    renamed: Mapping[Status, str]
    missing: frozenset[Status]
    defects: tuple[str, ...]

    def status_name(self, status: Status) -> str | None:
        """What the release calls a state; None for a state that its `RequestStatus` does not have."""
        return None if status in self.missing else self.renamed.get(status, status.value)

    def status_named(self, name: str) -> Status:
        """The state that the release calls `name`; DefinitionError when the specification knows none."""
        for status in Status:
            if self.status_name(status) == name:
                return status
        raise DefinitionError(
            f"{self.release} has a status {name} that the specification does not know: add it to the profile"
        )

    def machine(self, whole: Machine) -> Machine:
        """The specification with the features of this release only."""
        return whole.with_features(self.features)


_FSM = {Status.WAITING_FOR_GRAMMAR: "WAITING_FOR_FSM"}
_GRAMMAR = {Status.WAITING_FOR_GRAMMAR: "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR"}

_0_13 = (
    "VLLM-46240", "VLLM-32255", "VLLM-43226", "VLLM-26929", "VLLM-45357", "VLLM-42571", "VLLM-33377", "VLLM-31583",
    "VLLM-30320", "VLLM-45474", "VLLM-29877", "VLLM-45388", "VLLM-57841", "VLLM-57104", "VLLM-43433", "VLLM-41180",
    "VLLM-46066", "VLLM-15041", "VLLM-39734", "VLLM-26765", "VLLM-32173", "VLLM-30916", "VLLM-46263", "VLLM-45347",
    "VLLM-52482", "VLLM-55733",
)  # fmt: skip
_0_16 = (
    "VLLM-46240", "VLLM-43226", "VLLM-26929", "VLLM-45357", "VLLM-42571", "VLLM-30320", "VLLM-45474", "VLLM-29877",
    "VLLM-45388", "VLLM-57841", "VLLM-57104", "VLLM-43433", "VLLM-41180", "VLLM-46066", "VLLM-15041", "VLLM-39734",
    "VLLM-26765", "VLLM-46263", "VLLM-52693", "VLLM-35755", "VLLM-45347", "VLLM-52482", "VLLM-55733",
)  # fmt: skip
_0_32 = (
    "VLLM-46240", "VLLM-43226", "VLLM-26929", "VLLM-30320", "VLLM-45474", "VLLM-29877", "VLLM-41180", "VLLM-15041",
    "VLLM-39734", "VLLM-26765", "VLLM-46263", "VLLM-53130", "VLLM-52693", "VLLM-55733",
)  # fmt: skip
_OMNI = (
    "A1", "A2", "A4", "A5", "A7", "A9", "A10", "A12", "A13", "A15", "A18", "A19", "A22", "A23", "A26", "A28", "A30", "A32",
    "A33", "A37",
)  # fmt: skip

PROFILES: Mapping[str, Profile] = {
    p.release: p
    for p in (
        Profile(
            "0.13.0", "vllm", _COMMON, _FSM, _HERE_ONLY | _CHUNKS_ONLY | _SESSIONS_ONLY | _NEW_REASONS, _0_13
        ),
        Profile(
            "0.16.0", "vllm", (*_COMMON, "sessions"), _FSM, _HERE_ONLY | _CHUNKS_ONLY | _NEW_REASONS, _0_16
        ),
        Profile("0.32.0", "vllm", (*_COMMON, "sessions"), _GRAMMAR, _HERE_ONLY | _CHUNKS_ONLY, _0_32),
        Profile(
            "omni-0.16.0",
            "vllm-omni",
            (*_COMMON, "sessions", "handoff", "chunks"),
            _FSM,
            _HERE_ONLY | _NEW_REASONS,
            (*_0_16, *_OMNI),
        ),
    )
}
"""All profiles by release."""


def profile(release: str) -> Profile:
    """The profile of a release; DefinitionError names those there are."""
    if release not in PROFILES:
        raise DefinitionError(f"no profile for release {release}: choose from {', '.join(PROFILES)}")
    return PROFILES[release]
