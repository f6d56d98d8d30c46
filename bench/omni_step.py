"""What a step costs inside vllm-omni: our AR scheduler against its own, in one process, interleaved step by step.

    python bench/omni_step.py [--rows decode-256,hand-off-prompt] [--quick]

As scheduler_step.py, whose race it is: outputs are compared in every step, the median over windows of 16 steps counts. Rows with
hand-offs: the worker acknowledges what a step ships in the answer to that step. At a token ours ships a step later, when the
token itself is computed, so that what is shipped is not compared there, step by step. Chunks are not raced: the original loses
the order of its queues in each pass, so that the two would not do the same.
Exit codes: 0 measured, 1 usage, 2 the outputs differ.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import bench.scheduler_step as plain
from tests.differential.omni import ORIGINAL, OURS, Handed, OmniFactory

from vllm_lifecycle.adapters.vllm.config import load_class


@dataclass(frozen=True)
class Row(plain.Row):
    """A workload with hand-offs: "end", what triggers one, or "" for none."""

    handoff: str = ""

    def setup(self, asynchronous: bool) -> Handed:
        """The configuration."""
        made = super().setup(asynchronous)
        return Handed(**{f.name: getattr(made, f.name) for f in fields(made)}, handoff=self.handoff)


def _row(name: str, title: str, handoff: str) -> Row:
    known = plain.ROWS[name]
    return replace(
        Row(**{f.name: getattr(known, f.name) for f in fields(known)}), title=title, handoff=handoff
    )


ROWS = {
    **{
        name: _row(name, plain.ROWS[name].title, "")
        for name in ("decode-16", "decode-256", "decode-1024", "churn")
    },
    "hand-off-end": _row("churn", "churn, each handed off at its end", "end"),
    "hand-off-prompt": _row("churn", "churn, each handed off after its prompt", "prefill_finished"),
    "hand-off-token": _row("churn", "churn, each handed off at a token or at its end", "special_token"),
}


class Race(plain.Race):
    """A race whose worker copies what a step ships before it answers."""

    FACTORY = OmniFactory

    def __init__(self, row: plain.Row, classes: Sequence[type[Any]], asynchronous: bool) -> None:
        super().__init__(row, classes, asynchronous)
        self.handoff = getattr(row, "handoff", "")

    def _answers(self, outputs: list[Any]) -> list[Any]:
        answers = super()._answers(outputs)
        named = [list(output.finished_requests_needing_kv_transfer) for output in outputs]
        at_once = self.handoff != "special_token"
        if at_once and any(set(other) != set(named[0]) for other in named):
            raise plain.Differs(f"{self.row.title}: step {self.turn} ships different requests")
        for answer, ids in zip(answers, named, strict=True):
            answer.kv_extracted_req_ids = ids
        return answers


def main() -> int:
    """Measure and print the table; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options = plain.arguments(parser, ROWS)
    logging.disable(logging.CRITICAL)
    classes = [load_class(ORIGINAL), load_class(OURS)]
    print(f"vllm-omni, {classes[0].__name__} against {classes[1].__module__}:{classes[1].__name__}")
    plain.table(
        options.rows, ROWS, lambda row, count: plain.race(row, classes, count, False, Race), options.quick
    )
    return 0


if __name__ == "__main__":
    plain.run(main)
