"""Tokens per second of a whole engine with a real model: one scheduler class against vLLM's default.

    ENVIRONMENT/bin/python bench/end_to_end.py [SCHEDULER] [--rounds N] [--requests N] [--overlapped] [--processes]
        [--token-ids]

SCHEDULER is a dotted class name, ours if none is given, or `default`: then vLLM's own is measured against itself, which says
what a ratio of 1.0 looks like on this machine. ENVIRONMENT is the subject `0.32.0-inference` of scripts/vllm-env.

The requests are all there at once and all run together (prompts of 16 to 96 tokens, 96 tokens each to generate); one OpenMP
thread; the tiny model of bench/tiny_model.py, since a larger one hides the scheduler. Each measurement is a process of its own;
the two classes take turns, so that a change of the machine's load meets both. A process generates once to warm up and then
`--passes` times. Printed are the median rates, and the median over the rounds of the ratio within a round, in wall-clock and in
CPU time (above 1: the class is faster). The tokens of all passes of all processes have to be the same: exit code 2 when they
are not.

The engine runs inside the measured process; `--processes` takes vLLM's usual arrangement, with the engine and the worker
apart, instead, and measures wall-clock time alone; `--token-ids` leaves out the conversion of tokens to text.
"""

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import tiny_model  # noqa: E402
from tests.inference.engine import DEFAULT, ENVIRONMENT  # noqa: E402

TOKENS = 96


@dataclass(frozen=True)
class Measured:
    """One process: rates in tokens per second and CPU seconds per pass, and what was generated."""

    rates: list[float]
    cpu: float
    digest: str
    scheduler: str


def _prompts(count: int) -> list[dict[str, list[int]]]:
    lengths = [16 + 7 * i % 81 for i in range(count)]
    return [
        {"prompt_token_ids": [(31 * i + 17 * j + i * j) % 94 for j in range(length)]}
        for i, length in enumerate(lengths)
    ]


def _cpu_seconds() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, who))


def _engine(given: argparse.Namespace) -> Any:
    import vllm

    if given.overlapped:
        from tests.inference import cpu_async

        cpu_async.allow()
    return vllm.LLM(
        str(given.model),
        scheduler_cls=None if given.scheduler == DEFAULT else given.scheduler,
        async_scheduling=given.overlapped,
        enforce_eager=True,
        dtype="float32",
        max_model_len=tiny_model.MAX_LENGTH,
        max_num_seqs=given.requests,
        max_num_batched_tokens=4096,
        enable_prefix_caching=True,
    )


def measure(given: argparse.Namespace) -> Measured:
    """The passes of this process; run in one made by `_apart`."""
    from vllm import SamplingParams

    llm = _engine(given)
    prompts = _prompts(given.requests)
    parameters = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=not given.token_ids
    )
    rates = []
    digest = hashlib.sha256()
    cpu = 0.0
    for timed in range(1 + given.passes):
        llm.reset_prefix_cache()
        began, cpu_began = time.perf_counter(), _cpu_seconds()
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - began
        if timed:
            rates.append(TOKENS * len(outputs) / seconds)
            cpu += (_cpu_seconds() - cpu_began) / given.passes
        digest.update(repr([list(output.outputs[0].token_ids) for output in outputs]).encode())
    return Measured(rates, cpu, digest.hexdigest(), given.scheduler)


def _apart(scheduler: str, model: Path, given: argparse.Namespace) -> Measured:
    out = model / "measured.json"
    command = [sys.executable, __file__, scheduler, "--model", str(model), "--out", str(out)]
    command += ["--requests", str(given.requests), "--passes", str(given.passes)]
    for flag in ("overlapped", "processes", "token_ids"):
        command += [f"--{flag.replace('_', '-')}"] * getattr(given, flag)
    environment = {**os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(given.processes))}
    before = _cpu_seconds()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"end_to_end: a run with {scheduler} failed:\n{done.stderr[-4000:]}")
    whole = _cpu_seconds() - before
    measured = Measured(**json.loads(out.read_text(encoding="utf-8")))
    print(
        f"  {scheduler}: {' '.join(f'{rate:.0f}' for rate in measured.rates)} tokens/s, "
        f"{measured.cpu:.2f} CPU s a pass ({whole:.0f} with start)",
        flush=True,
    )
    return measured


def compare(given: argparse.Namespace) -> int:
    """Alternates the two classes and prints the ratios; 2 when tokens differ."""
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(Path(folder))
        pairs = [
            (_apart(DEFAULT, model, given), _apart(given.scheduler, model, given))
            for _ in range(given.rounds)
        ]
    default = statistics.median(rate for one, _ in pairs for rate in one.rates)
    other = statistics.median(rate for _, one in pairs for rate in one.rates)
    rate = statistics.median(statistics.median(b.rates) / statistics.median(a.rates) for a, b in pairs)
    cpu = statistics.median(a.cpu / b.cpu for a, b in pairs)
    same = len({one.digest for pair in pairs for one in pair}) == 1
    way = "async" if given.overlapped else "sync"
    place = "engine in its own processes" if given.processes else "engine in the process"
    form = "token ids" if given.token_ids else "text"
    print(f"{given.requests} requests of {TOKENS} tokens as {form}, {way} scheduling, {place}, one thread:")
    print(f"  default {default:.0f} tokens/s, {given.scheduler} {other:.0f} tokens/s")
    print(f"  ratio {rate:.2f} in wall-clock time", end="")
    print("" if given.processes else f", {cpu:.2f} in CPU time")
    print(f"  tokens {'the same' if same else 'DIFFER'} in all {2 * len(pairs)} processes")
    return 0 if same else 2


def main() -> int:
    """Parses the command line; with `--model` this is one measuring process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scheduler", nargs="?", metavar="SCHEDULER", help="class to measure; default: ours")
    parser.add_argument("--rounds", type=int, default=5, help="processes for each class")
    parser.add_argument("--passes", type=int, default=3, help="measured generations in each process")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--overlapped", action="store_true", help="with async scheduling")
    parser.add_argument(
        "--processes", action="store_true", help="engine and worker in processes of their own"
    )
    parser.add_argument("--token-ids", action="store_true", help="without converting tokens to text")
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.scheduler = (
        given.scheduler or f"vllm_lifecycle.adapters.vllm.Verified{'Async' * given.overlapped}Scheduler"
    )
    if given.model is None:
        return compare(given)
    given.out.write_text(json.dumps(vars(measure(given))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
