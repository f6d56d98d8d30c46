"""Profiles agree with the specification and the mutants; a test marked `vllm` holds them against the installed release."""

from __future__ import annotations

import pytest

from vllm_lifecycle.spec.lang.sorts import DefinitionError
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.spec.mutants import MUTANTS
from vllm_lifecycle.spec.profiles import PROFILES, Profile, profile


@pytest.mark.parametrize("row", PROFILES.values(), ids=lambda p: p.release)
def test_features_exist(row: Profile) -> None:
    assert row.machine(SYSTEM).actions


@pytest.mark.parametrize("row", PROFILES.values(), ids=lambda p: p.release)
def test_every_known_defect_of_a_release_is_a_mutant(row: Profile) -> None:
    mutants = {known for m in MUTANTS.values() for known in m.corpus}
    assert set(row.defects) <= mutants


@pytest.mark.parametrize("row", PROFILES.values(), ids=lambda p: p.release)
def test_status_names_are_one_to_one(row: Profile) -> None:
    names = [row.status_name(s) for s in Status if row.status_name(s) is not None]
    assert len(names) == len(set(names))
    for status in Status:
        name = row.status_name(status)
        if name is not None:
            assert row.status_named(name) is status


def test_unknown_names_say_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="add it to the profile"):
        profile("0.32.0").status_named("WAITING_FOR_GODOT")
    with pytest.raises(DefinitionError, match=r"choose from 0\.13\.0"):
        profile("0.99.0")


@pytest.mark.vllm
def test_the_installed_release_has_the_states_of_its_profile() -> None:
    import vllm
    from vllm.v1.request import RequestStatus

    row = profile(vllm.__version__.split("+")[0])
    names = {row.status_name(s) for s in Status} - {None}
    assert names == {s.name for s in RequestStatus}
