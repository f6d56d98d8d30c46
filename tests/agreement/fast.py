"""Breadth-first search in plain Python over compiled evaluation: slower than the packed engine, and independent of it."""

from __future__ import annotations

from vllm_lifecycle.spec.lang.compiled import Program
from vllm_lifecycle.spec.lang.evaluate import Domain
from vllm_lifecycle.spec.lang.machine import Machine
from vllm_lifecycle.spec.lang.packed import Packed


class Fast:
    """New states by depth, the number of steps, and the length of the shortest counterexample of each property."""

    def __init__(self, machine: Machine, domain: Domain, max_states: int, stop_at: str | None = None) -> None:
        self.program = Program(machine, domain)
        self.counts: list[int] = []
        self.transitions = 0
        self.lengths: dict[str, int] = {}
        self.complete = False
        self.states: set[Packed] = {self.program.initial}
        claims = [p for p in machine.properties if p.kind != "progress"]
        self._of_states = [p for p in claims if p.kind == "state"]
        self._of_steps = [p for p in claims if p.kind == "step"]
        self._search(max_states, stop_at)

    def _search(self, max_states: int, stop_at: str | None) -> None:
        frontier = [self.program.initial]
        while frontier:
            for state in frontier:
                for prop in self._of_states:
                    if prop.name not in self.lengths and any(
                        True for _ in self.program.violations(prop, state)
                    ):
                        self.lengths[prop.name] = len(self.counts)
            self.counts.append(len(frontier))
            if len(self.states) > max_states or stop_at in self.lengths:
                return
            frontier = [after for state in frontier for after in self._expand(state)]
        self.complete = True

    def _expand(self, state: Packed) -> list[Packed]:
        fresh = []
        for _, _, after in self.program.successors(state):
            self.transitions += 1
            for prop in self._of_steps:
                if prop.name not in self.lengths and any(
                    True for _ in self.program.violations(prop, state, after)
                ):
                    self.lengths[prop.name] = len(self.counts)
            if after not in self.states:
                self.states.add(after)
                fresh.append(after)
        return fresh
