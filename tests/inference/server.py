"""An OpenAI-compatible vLLM server in processes of its own, and an OpenAI client that asks it for a scenario."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.inference.engine import COUNTERS, ENVIRONMENT, OPTIONS
from tests.inference.workload import Asked, Scenario

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 240
LOCAL = "127.0.0.1"


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Engine arguments as the command line has them."""
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={json.dumps(value) if isinstance(value, dict) else value}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((LOCAL, 0))
        return int(one.getsockname()[1])


def fetch(url: str) -> str:
    """The text behind a URL of the server."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            fetch(url + "/health")
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-6000:]}")


@contextmanager
def serving(model: Path, scenario: Scenario, scheduler: str | None, log: Path) -> Iterator[str]:
    """The URL of a server with the scenario's engine and that scheduler class, stopped at the end."""
    port = _free_port()
    options = {k: v for k, v in OPTIONS.items() if k != "disable_log_stats"} | dict(scenario.options)
    options |= {"model": str(model), "host": LOCAL, "port": port, "async_scheduling": scenario.overlapped}
    if scheduler is not None:
        options["scheduler_cls"] = scheduler
    module = "tests.inference.serve" if scenario.overlapped else "vllm.entrypoints.openai.api_server"
    command = [sys.executable, "-m", module, "--disable-uvicorn-access-log", *_flags(options)]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            _wait(process, f"http://{LOCAL}:{port}", log)
            yield f"http://{LOCAL}:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


async def _one(client: Any, model: Path, asked: Asked) -> dict[str, Any]:
    """One streamed completion; the client closes the stream where its request says so."""
    sampling = dict(asked.sampling)
    plain = {
        key: sampling.pop(key) for key in ("temperature", "max_tokens", "seed", "top_p") if key in sampling
    }
    extra = sampling | {"priority": asked.priority, "return_token_ids": True}
    stream = await client.completions.create(
        model=str(model), prompt=list(asked.prompt), stream=True, extra_body=extra, **plain
    )
    tokens: list[int] = []
    reason = None
    async for chunk in stream:
        for choice in chunk.choices:
            tokens += choice.token_ids or []
            reason = choice.finish_reason or reason
        if asked.leaves is not None and len(tokens) >= asked.leaves and reason is None:
            await stream.close()
            return {"tokens": tokens, "reason": "left"}
    return {"tokens": tokens, "reason": reason}


async def _all(url: str, model: Path, asked: list[Asked]) -> list[dict[str, Any]]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url + "/v1", api_key="none", timeout=120, max_retries=0) as client:
        return await asyncio.gather(*(_one(client, model, one) for one in asked))


def ask(url: str, model: Path, asked: list[Asked]) -> dict[str, dict[str, Any]]:
    """All requests at once through the OpenAI client; outcomes by name."""
    outcomes = asyncio.run(_all(url, model, asked))
    return {one.name: outcome for one, outcome in zip(asked, outcomes, strict=True)}


def counters(url: str) -> dict[str, int]:
    """The server's own counts of the events in `engine.COUNTERS`."""
    text = fetch(url + "/metrics")
    values = {}
    for event, name in COUNTERS.items():
        found = re.findall(rf"^{name}_total\{{.*\}} (\S+)$", text, re.MULTILINE)
        values[event] = int(sum(map(float, found)))
    return values
