"""Async scheduling on a CPU, for tests: vLLM's CPU platform always switches it off, though its engine and runner have it.

`allow` puts the user's choice back after the platform has decided and gives the worker a class whose streams and events,
which only a GPU has, do nothing. The engine then really keeps two steps in flight: it schedules step k + 1 before it has seen
the tokens of step k. No code of the engine, the scheduler or the runner is changed.
"""

from contextlib import nullcontext
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.worker.cpu_worker import CPUWorker


class _Nothing:
    """A stream or an event of a device that has finished whatever it was asked: all methods return at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...


class Worker(CPUWorker):  # type: ignore[misc]
    """A CPU worker in whose process the names of CUDA streams can be used."""

    def init_device(self) -> None:
        torch.cuda.Stream = torch.cuda.Event = _Nothing
        torch.cuda.current_stream = _Nothing
        torch.cuda.stream = lambda _: nullcontext()
        super().init_device()


def allow() -> None:
    """From now on a configuration made in this process keeps `async_scheduling` as it was asked for."""
    decide = CpuPlatform.check_and_update_config

    def keep(config: VllmConfig) -> None:
        chosen = config.scheduler_config.async_scheduling
        decide(config)
        config.scheduler_config.async_scheduling = chosen
        if chosen:
            config.parallel_config.worker_cls = f"{Worker.__module__}.{Worker.__qualname__}"

    CpuPlatform.check_and_update_config = staticmethod(keep)
