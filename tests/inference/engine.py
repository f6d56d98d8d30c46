"""Runs scenarios in this process, with each scheduler class in turn, and writes what came out.

    python -m tests.inference.engine MODEL OUT SCHEDULER [SCHEDULER ...] [--count N] [--only NAME]

SCHEDULER is `default` (vLLM's own) or `SYNC,ASYNC`: dotted names of one class for each way of scheduling. The engine runs
inside the process, so that what is scheduled depends on the requests alone: two classes that decide alike give every token
alike, whatever the machine does meanwhile. For the same reason departures happen at a fixed token of the request, and
grammars are compiled at once and not in a thread.

Each scenario has a process of its own, forked after vLLM was imported: engines share no state, and the import is paid
once. `main` sets the environment before it imports vLLM, which reads it at import.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.inference.workload import BLOCK, Asked, Scenario, scenarios

#: What a process with real inference sees; one thread, nothing compiled, no network.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
DEFAULT = "default"
OPTIONS = {
    "enforce_eager": True,
    "dtype": "float32",
    "block_size": BLOCK,
    "max_model_len": 512,
    "seed": 0,
    "disable_log_stats": False,
    "logprobs_mode": "processed_logprobs",
}
COUNTERS = {
    "preempted": "vllm:num_preemptions",
    "prefix_hit": "vllm:prefix_cache_hits",
    "draft_accepted": "vllm:spec_decode_num_accepted_tokens",
    "drafted": "vllm:spec_decode_num_draft_tokens",
}


def _parameters(asked: Asked) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    sampling = dict(asked.sampling)
    if structured := sampling.pop("structured_outputs", None):
        sampling["structured_outputs"] = StructuredOutputsParams(**structured)
    if asked.greedy:
        sampling["logprobs"] = 2
    return SamplingParams(**sampling)


def _record(output: Any) -> dict[str, Any]:
    """One request's outcome; `margin` is the least distance of the two most likely tokens at any of its steps."""
    [one] = output.outputs
    ranked = [sorted((x.logprob for x in at.values()), reverse=True) for at in one.logprobs or ()]
    return {
        "tokens": list(one.token_ids),
        "text": one.text,
        "reason": one.finish_reason,
        "stop": one.stop_reason,
        "cached": output.num_cached_tokens,
        "margin": min((first - second for first, second, *_ in ranked), default=None),
    }


def _steps(llm: Any, asked: list[Asked]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Steps the engine; gives each request's outcome, for one whose client leaves what it had received."""
    engine, step = llm.llm_engine, 0
    waiting = sorted(asked, key=lambda one: one.arrives)
    here: dict[str, tuple[str, Asked]] = {}
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[0].arrives <= step:
            one = waiting.pop(0)
            prompt = {"prompt_token_ids": list(one.prompt)}
            at = engine.add_request(one.name, prompt, _parameters(one), priority=one.priority)
            here[one.name] = at, one
        step += 1
        for output in engine.step():
            internal, one = here[output.request_id]
            if output.finished:
                yield one.name, _record(output)
            elif one.leaves is not None and len(output.outputs[0].token_ids) >= one.leaves:
                engine.abort_request([internal], internal=True)
                yield one.name, {**_record(output), "reason": "left"}


def _together(llm: Any, asked: list[Asked]) -> Iterator[tuple[str, dict[str, Any]]]:
    outputs = llm.generate(
        [{"prompt_token_ids": list(one.prompt)} for one in asked],
        [_parameters(one) for one in asked],
        priority=[one.priority for one in asked],
        use_tqdm=False,
    )
    yield from ((one.name, _record(output)) for one, output in zip(asked, outputs, strict=True))


def _events(llm: Any, asked: list[Asked], outcomes: dict[str, dict[str, Any]], budget: int) -> dict[str, int]:
    """How often each thing that a scenario is there for has happened."""
    metrics = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
    events = {event: int(metrics.get(name, 0)) for event, name in COUNTERS.items()}
    events["draft_refused"] = events["drafted"] - events["draft_accepted"]
    events["chunked"] = sum(len(one.prompt) > budget for one in asked)
    events["left_early"] = sum(outcome["reason"] == "left" for outcome in outcomes.values())
    events["structured"] = sum(
        "structured_outputs" in one.sampling and outcomes[one.name]["reason"] == "stop" for one in asked
    )
    return events


def run(scenario: Scenario, model: Path, scheduler: str | None) -> dict[str, Any]:
    """One scenario in this process's only engine."""
    from vllm import LLM

    options = OPTIONS | dict(scenario.options) | {"async_scheduling": scenario.overlapped}
    llm = LLM(str(model), scheduler_cls=scheduler, **options)
    core = llm.llm_engine.engine_core.engine_core
    core.structured_output_manager._use_async_grammar_compilation = False
    asked = scenario.asked()
    began = time.perf_counter()
    outcomes = dict((_steps if scenario.stepped else _together)(llm, asked))
    seconds = time.perf_counter() - began
    budget = core.vllm_config.scheduler_config.max_num_batched_tokens
    return {
        "scheduler": f"{type(core.scheduler).__module__}.{type(core.scheduler).__qualname__}",
        "in_flight": core.batch_queue_size,
        "seconds": seconds,
        "events": _events(llm, asked, outcomes, budget),
        "outcomes": outcomes,
    }


def class_name(scheduler: str, scenario: Scenario) -> str | None:
    """The class of `SYNC,ASYNC` that fits the scenario's way of scheduling; None is vLLM's own choice."""
    return None if scheduler == DEFAULT else scheduler.split(",")[scenario.overlapped]


def apart(scenario: Scenario, model: Path, scheduler: str | None) -> dict[str, Any]:
    """`run` in a forked process; an engine that dies is an error here, not an end of everything."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return process.submit(run, scenario, model, scheduler).result()


def main() -> int:
    """Parses the command line, runs, writes JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("schedulers", nargs="+", metavar="SCHEDULER")
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--only")
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT, VLLM_ENABLE_V1_MULTIPROCESSING="0")
    import vllm
    from tests.inference import cpu_async

    assert vllm.LLM, "imported before the first fork"
    cpu_async.allow()
    chosen = [scenario for scenario in scenarios(given.count) if given.only in (None, scenario.name)]
    results = {
        name: {scenario.name: apart(scenario, given.model, class_name(name, scenario)) for scenario in chosen}
        for name in given.schedulers
    }
    given.out.write_text(json.dumps(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
