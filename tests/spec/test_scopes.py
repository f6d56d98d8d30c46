"""Scopes: sizes written down, names, and the machine and domain that they make."""

from __future__ import annotations

import pytest

from vllm_lifecycle.spec.lang.machine import range_of
from vllm_lifecycle.spec.lang.sorts import DefinitionError, IntSort
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.scopes import SCOPES, Scope, parse


def test_sizes_are_requests_blocks_steps_and_entries() -> None:
    assert parse("3x4").sizes == {"Request": 3, "Block": 4, "Step": 1, "Entry": 1}
    assert parse("2x3x2").sizes == {"Request": 2, "Block": 3, "Step": 2, "Entry": 1}
    assert parse("3x4").domain.individuals["Block"] == (0, 1, 2, 3)
    assert "2 requests x 1 block" in str(parse("2x1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "unknown scope foo: write REQUESTSxBLOCKS"),
        ("", "unknown scope : write REQUESTSxBLOCKS"),
        ("3", "has 1 size"),
        ("1x1x1x1x1", "has 5 size"),
        ("0x3", "has 0 of sort Request: write a size from 1 to"),
        ("2x99", "has 99 of sort Block: write a size from 1 to"),
    ],
)
def test_impossible_scopes_are_refused_with_the_repair(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse(text)


def test_every_constant_of_the_specification_has_a_value_in_every_scope() -> None:
    for scope in (parse("2x3"), *SCOPES):
        constants = scope.domain.constants
        assert {c.name for c in SYSTEM.consts} <= constants.keys()
        for var in SYSTEM.vars:
            if isinstance(var.sort, IntSort):
                assert len(range_of(var.sort, constants)) > 0


def test_a_scope_takes_features_and_modules_away() -> None:
    scope = Scope("small", parse("1x1").sizes, features=("core",), modules=SYSTEM.modules)
    machine = scope.machine(SYSTEM)
    assert {a.feature for a in machine.actions} == {"core"}
    sliced = scope.machine(SYSTEM, about=SYSTEM.properties[0].name)
    assert len(sliced.vars) <= len(machine.vars)
    assert sliced.claim(SYSTEM.properties[0].name).name == SYSTEM.properties[0].name


def test_sizes_may_be_put_on_top_of_a_scope() -> None:
    base = Scope("base", parse("1x1").sizes, features=("core",))
    assert parse("2x2", base).features == ("core",)
    assert parse("2x2", base).sizes["Request"] == 2
