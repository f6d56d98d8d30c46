"""The model, and the in-process runs that several tests look at."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import tiny_model
from tests.inference.compare import OURS
from tests.inference.engine import DEFAULT, ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
COUNT = 256


def run_engine(model: Path, out: Path, *arguments: str) -> dict[str, Any]:
    """The results of `tests.inference.engine` in a process of its own."""
    command = [sys.executable, "-m", "tests.inference.engine", str(model), str(out), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return results


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm")
    pytest.importorskip("prometheus_fastapi_instrumentator", reason="vLLM is installed without its server")
    return tiny_model.make(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def results(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results by class, `default` and `ours`, and scenario."""
    out = tmp_path_factory.mktemp("runs") / "results.json"
    both = run_engine(model, out, DEFAULT, OURS, "--count", str(COUNT))
    return {"default": both[DEFAULT], "ours": both[OURS]}
