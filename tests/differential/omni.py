"""vllm-omni's AR scheduler and ours: hand-offs, with a worker that acknowledges late, twice, and for nobody.

`python -m tests.differential.omni [--steps N] [--group G] [--plain]`, in an environment with vllm-omni 0.16.0. Groups: each of
vLLM's own without hand-offs, and `hand-off ...` (at the end, after the prompt, at a token; with preemption, aborts, loads and
sends, resets, pipeline stages), with input in `chunks` from a former stage, and with both. Acknowledgements follow from the
answers that carry them, and chunks from the numbers of steps, so that a case replays.

Rejected: the threads of the chunk adapter (they make no order that two sides could share; omni_chunks.py plays them).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import vllm_omni  # noqa: F401  (patches vLLM before the harness reads it)
from tests.differential import groups, rows
from tests.differential.build import Factory
from tests.differential.features import mends, record, refused
from tests.differential.groups import GROUPS, Drawn
from tests.differential.omni_chunks import FormerStage
from tests.differential.omni_sessions import Clients, is_session
from tests.differential.pair import Pair
from tests.differential.plain import Difference
from tests.differential.run import Classes, run_group
from tests.differential.settings import Add, Answer, Setup
from tests.differential.worker import Flight

from vllm_lifecycle.adapters.omni.config import configure, without_threads
from vllm_lifecycle.adapters.vllm.config import load_class
from vllm_lifecycle.adapters.vllm.scope import Scope

OURS = "vllm_lifecycle.adapters.omni:VerifiedOmniARScheduler"
ORIGINAL = "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler"
MENDED = "tests.differential.omni_mended:Scheduler"
SENTINEL = 209  # what requests of family 0 sample at their fourth place
ENRICHED = (
    "external_req_id", "additional_information", "finished_requests_needing_kv_transfer", "resumed_req_ids.set",
)  # fmt: skip
"""Fields that a connector sees in our step's output already, and in the original's only after it was asked."""


@dataclass(frozen=True, repr=False)
class Handed(Setup):
    """A setup with hand-offs ("end", or what triggers one), with input in chunks, with sessions."""

    handoff: str = ""
    chunks: bool = False
    sessions: bool = False


class OmniFactory(Factory):
    """Builds schedulers whose model configuration asks for hand-offs."""

    def _config(self) -> Any:
        config = super()._config()
        kind = getattr(self.setup, "handoff", "")
        criteria = {"type": kind, "token_id": SENTINEL} if kind not in ("", "end") else None
        settings = {"need_send_cache": True, "kv_transfer_criteria": criteria, "acknowledgement": "reported"}
        if getattr(self.setup, "chunks", False):
            configure(config, Scope("chunks", chunks=True))
        object.__setattr__(config.model_config, "omni_kv_config", settings if kind else None)
        return config

    def scheduler(self, *args: Any) -> Any:
        with without_threads():
            return super().scheduler(*args)

    def request(self, *args: Any) -> Any:
        made = super().request(*args)
        made.external_req_id = made.request_id
        made.resumable = getattr(self.setup, "sessions", False) and is_session(args[0])
        return made


@cache
def omni_factory(setup: Setup) -> OmniFactory:
    """The factory of a setup, made once."""
    return OmniFactory(setup)


class OmniPair(Pair):
    """Both schedulers, and a worker that copies what is handed off."""

    made_by = staticmethod(omni_factory)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.copying: list[str] = []
        self.copied: list[str] = []
        self.accept = 0
        self.former = FormerStage(self.sides) if getattr(self.setup, "chunks", False) else None

        self.clients = Clients(self.factory) if getattr(self.setup, "sessions", False) else None

    def _add(self, add: Add) -> None:
        if self.clients is not None and add.rid not in self.adds:
            self.clients.opened(add)
        super()._add(add)

    def _step(self) -> None:
        former = self.former
        if len(self.flights) < self.setup.depth and not self._further_inputs():
            return
        if former is None or len(self.flights) >= self.setup.depth:
            super()._step()
            return
        self.met.update(former.arrive(self.steps + 1))
        super()._step()
        if not self.over():
            live = {rid for rid, r in self.reference.scheduler.requests.items() if not r.is_finished()}
            self._compare("what the chunk adapter has", *former.waits(live))

    def _further_inputs(self) -> bool:
        """Clients of sessions send what they have; False when the run is over."""
        if self.clients is None:
            return True
        live = {rid for rid, r in self.reference.scheduler.requests.items() if not r.is_finished()}
        for rid, make in self.clients.inputs(self.steps, live):
            idle = self.reference.requests[rid].status.name == "WAITING_FOR_STREAMING_REQ"
            self.met["further inputs"] += 1
            self.met["further inputs to idle sessions"] += idle
            if not self._both("add_request", (make(),), (make(),)):
                return False
        return True

    def _answer(self, event: Answer) -> None:
        self.accept = event.accept
        super()._answer(event)

    def _reply(self, flight: Flight, sampled: dict[str, list[int]], report: Any) -> Any:
        answer = super()._reply(flight, sampled, report)
        answer.kv_extracted_req_ids = list(self._acknowledged(flight))
        return answer

    def _acknowledged(self, flight: Flight) -> list[str]:
        """The same for both sides: reckoned at the first of the two answers to a step."""
        if getattr(flight, "reported", None) is None:
            shipped = list(flight.outputs[0].finished_requests_needing_kv_transfer)
            self.met["handed off"] += len(shipped)
            self.copying += shipped
            done = [rid for rid in self.copying if (self.accept + crc32(rid.encode())) % 3]
            self.copying = [rid for rid in self.copying if rid not in done]
            again = self.copied[-1:] if self.accept % 5 == 4 else []
            self.met["acknowledged twice"] += len(again)
            self.copied += done
            flight.reported = [*done, *again, *(["nobody"] if self.accept % 5 == 3 else [])]  # type: ignore[attr-defined]
        found: list[str] = flight.reported  # type: ignore[attr-defined]
        return found

    def _compare(self, call: str, reference: Any, ours: Any) -> None:
        super()._compare(call, reference, ours)
        if self.divergence is not None:
            found = tuple(self._told_apart(self.divergence.differences))
            self.divergence = replace(self.divergence, differences=found) if found else None

    def _told_apart(self, found: tuple[Difference, ...]) -> Iterator[Difference]:
        for difference in found:
            early = ".kv_connector_metadata.scheduled." in f".{difference.path}"
            if not (early and difference.path.endswith(ENRICHED)):
                yield difference


class OmniClasses(Classes):
    """Pairs with hand-offs."""

    def pair(self, setup: Setup) -> OmniPair:
        """Fresh schedulers of the setup; encoder-decoder models have several groups of layers, which are refused."""
        if setup.encoder == "encoder-decoder":
            setup = replace(setup, encoder="decoder-only")
        return OmniPair(self.reference, self.ours, setup)


def _handed(kind: str, base: str, chunks: bool = False, sessions: bool = False) -> Any:
    def group(rng: Random) -> Drawn:
        setup, mix = GROUPS[base](rng)
        kept = {f.name: getattr(setup, f.name) for f in fields(setup)}
        if sessions:  # room for all: who waits for whose blocks is another matter
            kept["blocks"] = 12 * -(-setup.model_length // setup.block_size)
        return Handed(**kept, handoff=kind, chunks=chunks, sessions=sessions), mix

    return group


BASES = ("mixed", "preemption", "aborts", "loads", "resets", "pipeline", "sharing")
KINDS = {"end": "end", "prompt": "prefill_finished", "token": "special_token"}
HANDED = {
    f"hand-off {name} {base}": _handed(kind, base)
    for name, kind in KINDS.items()
    for base in BASES
    if base in GROUPS
}
CHUNKED = {f"chunks {base}": _handed("", base, chunks=True) for base in BASES} | {
    f"chunks and hand-off {name} {base}": _handed(kind, base, chunks=True)
    for (name, kind), base in product(KINDS.items(), ("mixed", "aborts", "loads"))
}


def _reset_raises(call: str, found: Any, pair: Pair) -> bool:
    """The original raises out of a forced reset when a hand-off, or a step in flight, holds blocks; ours answers."""
    reference, ours = pair.sides
    return call == "reset_prefix_cache" and "Failed to reset KV cache" in reference.trace and not ours.trace


def _report_raises(call: str, found: Any, pair: Pair) -> bool:
    """The original asserts that a request whose load is reported is there, and not held; ours counts the report."""
    reference, ours = pair.sides
    asserted = "AssertionError" in reference.trace and " _update_from_kv_xfer_finished:" in reference.trace
    return call == "update_from_output" and asserted and not ours.trace


def _loaded(call: str, found: Any, pair: Pair) -> bool:
    """After a load that came in part the original takes what was not loaded off twice (_update_requests_with_invalid_blocks)."""
    ends = "num_external_computed_tokens"
    fewer = all(
        d.path.endswith(ends) and isinstance(d.reference, int) and d.reference < d.ours for d in found
    )
    return bool(pair.met["load failed"]) and fewer


rows.ROWS = (
    *rows.ROWS,
    rows.Row("a forced reset while blocks are held", "RuntimeError ends the engine", _reset_raises),
    rows.Row(
        "a load is reported of a request that has ended",
        "A10: AssertionError ends the engine",
        _report_raises,
    ),
    rows.Row("tokens told as loaded after a load in part", "what was not loaded is taken off twice", _loaded),
)
AHEAD = "-ahead"
WITHOUT = ("asynchronous", "asynchronous-drafts", "hybrid", "encoder-decoder")
SESSIONS = {
    f"sessions {base}": _handed("", base, sessions=True) for base in ("mixed", "aborts", "sharing", "loads")
} | {
    f"sessions{' and chunks' * chunks}{' and hand-off ' * bool(name)}{name} {base}": _handed(
        kind, base, chunks, sessions=True
    )
    for (name, kind), chunks, base in product(
        (("", ""), ("end", "end"), ("prompt", "prefill_finished")), (False, True), ("mixed", "aborts")
    )
}
TOGETHER = tuple(name for name in SESSIONS if "chunks" in name and "hand-off" in name)
"""Workloads with sessions, chunks, hand-offs and aborts at once."""
groups.GROUPS.update({**HANDED, **CHUNKED, **SESSIONS})  # type: ignore[attr-defined]


def main() -> int:
    """Run the groups; the exit code."""
    parser = argparse.ArgumentParser("python -m tests.differential.omni", description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--group", action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--together", type=int, metavar="N", help="steps of each workload that has everything at once"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what the run came to")
    parser.add_argument("--plain", action="store_true", help="against the original as it is")
    options = parser.parse_args()
    ours, reference = load_class(OURS), load_class(ORIGINAL if options.plain else MENDED)
    classes = OmniClasses(ours, ours, reference, reference)
    failures, reports = 0, []
    for group in options.group or [g for g in GROUPS if not g.startswith(WITHOUT) and not g.endswith(AHEAD)]:
        steps = (options.together if group in TOGETHER else None) or options.steps
        report = run_group(classes, group, steps, options.seed)
        reports.append(report)
        intended = "; ".join(f"{name} x{count}" for name, count in report.rows.items())
        told = f"{report.met['handed off']} handed off, {report.met['acknowledged twice']} twice, {report.met['chunks']} chunks"
        print(
            f"{group:28} {report.steps:6} steps  unexplained {int(report.failure is not None)}  {told}  {intended}".rstrip(),
            flush=True,
        )
        if report.failure:
            failures += 1
            print(report.failure)
    if options.record:
        record(options.record, "omni-0.16.0", OURS, reports, refused(ours), mends(reference))
    return 2 if failures else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
