"""The plugin costs nothing to those who do not use it, and speaks in sequences to those who do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "vllm",
    "torch",
    "z3",
    "numpy",
    "scipy",
    "hypothesis",
    "vllm_lifecycle.spec",
    "vllm_lifecycle.adapters.vllm",
)


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_plugin_imports_no_engine() -> None:
    loaded = f"[m for m in {HEAVY!r} if m in sys.modules]"
    assert _python(f"import sys, vllm_lifecycle.adapters.pytest_plugin; print({loaded})") == "[]"


def test_pytest_finds_the_plugin_and_starts_without_an_engine(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_nothing_is_loaded(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('vllm_lifecycle')\n"
        f"    assert [m for m in {HEAVY!r} if m in sys.modules and m != 'hypothesis'] == []\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_contract_is_one_line() -> None:
    from vllm_lifecycle.adapters.pytest_plugin import lifecycle_check

    with pytest.raises(pytest.fail.Exception) as failed:
        lifecycle_check(contract="friendly")
    assert str(failed.value) == "unknown contract 'friendly': choose legal or hostile"
