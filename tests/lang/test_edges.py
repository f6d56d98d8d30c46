"""Edges read off the actions are never too few: what the reference evaluator sees happen is among them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from tests.agreement.naive import search
from tests.agreement.specs import Colour, example

from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Individual, State, ite
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.edges import Edge, edges
from vllm_lifecycle.spec.lang.machine import Lifecycle
from vllm_lifecycle.spec.lang.sorts import EnumSort


def test_what_happens_is_among_the_edges() -> None:
    moves = 0
    for this in map(example, range(100)):
        naive = search(this.machine, this.domain, max_states=60)
        cells = ev.cells(this.machine, this.domain)
        for var in this.machine.vars:
            if var.sort != EnumSort(Colour):
                continue
            lifecycle = Lifecycle(var.name, var.name, (None,) * len(var.args), (), "")
            found = set(edges(this.machine, lifecycle))
            for before, outs in naive.steps.items():
                for action, _, after in outs:
                    for (name, _), old, new in zip(cells, before, after, strict=True):
                        if name == var.name and old is not new:
                            moves += 1
                            assert Edge(old, new, action) in found, (this.seed, action)
    assert moves >= 1000


class Lamp(Individual):
    """A sort."""


class Kind(Enum):
    """Which of a lamp's lights."""

    FRONT = "FRONT"
    BACK = "BACK"


class Light(Enum):
    """States."""

    OFF = "OFF"
    DIM = "DIM"
    ON = "ON"


spec = Spec("lamps")
spec.var("light", Lamp, Kind, to=Light, init=Light.OFF, module="m")
spec.var("power", module="m")


@spec.action(by="anybody")
def brighten(s: State, lamp: Lamp, kind: Kind) -> None:
    s.require(s.light[lamp, kind] != Light.ON)
    s.light[lamp, kind] = ite(s.light[lamp, kind] == Light.OFF, Light.DIM, Light.ON)


@spec.action(by="anybody")
def set_back(s: State, lamp: Lamp, to: Light) -> None:
    s.require(to != Light.ON)
    s.light[lamp, Kind.BACK] = to


@spec.action(by="anybody")
def cut_power(s: State) -> None:
    s.require(s.power)
    s.light[:, Kind.FRONT] = Light.OFF
    s.power = False


MACHINE = spec.seal()
FRONT = Lifecycle("front", "light", (None, t.Lit(Kind.FRONT, EnumSort(Kind))), (), "")
BACK = replace(FRONT, name="back", index=(None, t.Lit(Kind.BACK, EnumSort(Kind))))


def seen(lifecycle: Lifecycle) -> set[tuple[str, str, str]]:
    return {(e.source.name, e.target.name, e.action) for e in edges(MACHINE, lifecycle)}


def test_the_edges_of_one_kind_leave_out_those_of_the_other() -> None:
    up = {("OFF", "DIM", "brighten"), ("DIM", "ON", "brighten")}
    assert seen(FRONT) == up | {("DIM", "OFF", "cut_power"), ("ON", "OFF", "cut_power")}
    assert seen(BACK) == up | {
        ("OFF", "DIM", "set_back"),
        ("DIM", "OFF", "set_back"),
        ("ON", "OFF", "set_back"),
        ("ON", "DIM", "set_back"),
    }
