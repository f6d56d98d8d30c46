"""The steps that make an environment, each recorded in a stamp so that a second run does only what is missing.

The stamp has one digest per step. A step is done again when its digest changes: that of the recipe, or that of
the project's packaging for the step that installs the project itself. A step that failed leaves no stamp, so the
next run does it again from the start; there is no repairing of half-made environments.
"""

import hashlib
import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

from . import stubs
from .requirements import choose
from .subjects import ALONE, BESIDE, REACHED, TORCH, Subject

_REQUIRES = "import importlib.metadata as m, json, sys; print(json.dumps(m.requires(sys.argv[1])))"
_SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
_IMPORT = (
    "import importlib, inspect, sys; module, name = sys.argv[1].split(':'); "
    "print(inspect.getfile(getattr(importlib.import_module(module), name)))"
)


class EnvError(Exception):
    """Something the user can act on; its text is one line."""


@dataclass(frozen=True)
class Env:
    """One environment's places: `path` is the environment, `root` the project."""

    subject: Subject
    path: Path
    root: Path

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.path / "bin" / "python"

    @property
    def log(self) -> Path:
        """Where every command's output goes: beside the environment, so that a new start keeps it."""
        return self.path.with_name(self.path.name + ".log")

    def run(self, what: str, *command: str | Path) -> str:
        """The standard output of a command; EnvError naming the log when it fails."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            # Compiled files are kept, whatever the caller's shell says: importing vLLM costs twice as much without.
            kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=log, text=True, check=False, env=kept
            )
            log.write(done.stdout)
        if done.returncode:
            raise EnvError(f"{what} failed; see {self.log}")
        return done.stdout

    def pip(self, what: str, *arguments: str) -> None:
        """Runs the environment's pip; nothing is compiled ahead, the import at the end does what is needed."""
        self.run(what, self.python, "-m", "pip", "install", "--no-compile", "--no-input", *arguments)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _stub_source() -> str:
    return Path(stubs.__file__).read_text(encoding="utf-8")


def recipe_digest(subject: Subject) -> str:
    """Changes exactly when the environment would be made differently."""
    stub_source = _stub_source() if subject.stubbed else ""
    return _digest(TORCH, sorted(REACHED), sorted(ALONE), BESIDE, astuple(subject), stub_source)


def project_digest(root: Path) -> str | None:
    """That of what an installation reads in `pyproject.toml`; None while there is nothing to install."""
    packaging = root / "pyproject.toml"
    if not packaging.is_file():
        return None
    tables = tomllib.loads(packaging.read_text(encoding="utf-8"))
    return _digest(tables.get("build-system"), tables.get("project"), tables.get("tool", {}).get("hatch"))


def _create(env: Env, python: str) -> None:
    env.path.parent.mkdir(parents=True, exist_ok=True)
    env.log.write_text("", encoding="utf-8")
    env.run(f"{python} -m venv", python, "-m", "venv", "--clear", env.path)


def _install_releases(env: Env) -> None:
    env.pip("installing " + " ".join(env.subject.releases), "--no-deps", *env.subject.releases)


def _install_whole(env: Env) -> None:
    releases = env.subject.releases
    env.pip("installing " + " ".join(releases), TORCH, *releases, *BESIDE, *env.subject.extra)
    removed = env.subject.removed
    env.run("removing " + " ".join(removed), env.python, "-m", "pip", "uninstall", "--yes", *removed)


def _install_dependencies(env: Env) -> None:
    release = env.subject.releases[0].partition("==")[0]
    lines = json.loads(env.run("reading the release's metadata", env.python, "-c", _REQUIRES, release))
    env.pip("installing the dependencies", TORCH, *choose(lines, REACHED), *BESIDE, *env.subject.extra)
    env.pip("installing " + " ".join(sorted(ALONE)), "--no-deps", *choose(lines, ALONE))


def _install_stubs(env: Env) -> None:
    site = Path(env.run("finding site-packages", env.python, "-c", _SITE).strip())
    (site / "vllm_env_stubs.py").write_text(_stub_source(), encoding="utf-8")
    start = f"import vllm_env_stubs; vllm_env_stubs.install({env.subject.stubbed!r})\n"
    (site / "vllm_env_stubs.pth").write_text(start, encoding="utf-8")


def make(env: Env, python: str, say: Callable[[str], None]) -> None:
    """Brings `env` up to date, saying each step; EnvError when one fails, with the finished steps kept."""
    stamp = _Stamp(env)
    if not stamp.has("recipe", recipe_digest(env.subject)):
        _create(env, python)
        stamp.clear()
        say(f"created {env.path}")
        if env.subject.whole:
            _install_whole(env)
            say(f"installed {TORCH} and the whole of " + " ".join(env.subject.releases))
        else:
            _install_releases(env)
            say("installed " + " ".join(env.subject.releases))
            _install_dependencies(env)
            say(f"installed {TORCH} and what the scheduler reaches")
        if env.subject.stubbed:
            _install_stubs(env)
            say("stubbed " + " ".join(env.subject.stubbed))
        stamp.put("recipe", recipe_digest(env.subject))
    project = project_digest(env.root)
    if project is None:
        say("skipped the project itself: there is no pyproject.toml yet; run this again when there is")
    elif not stamp.has("project", project):
        env.pip("installing the project", "-e", str(env.root))
        say("installed the project itself, editable")
        stamp.put("project", project)
    if not stamp.has("scheduler", env.subject.scheduler):
        where = env.run(
            f"importing {env.subject.scheduler}", env.python, "-c", _IMPORT, env.subject.scheduler
        )
        stamp.put("scheduler", env.subject.scheduler)
        stamp.put("file", where.strip().splitlines()[-1])
    say(f"{env.subject.scheduler} is {stamp.get('file')}")


class _Stamp:
    """The steps done in one environment, written after each."""

    def __init__(self, env: Env) -> None:
        self._file = env.path / "vllm-env.json"
        whole = self._file.is_file() and env.python.exists()
        self._done: dict[str, str] = json.loads(self._file.read_text(encoding="utf-8")) if whole else {}

    def get(self, step: str) -> str | None:
        return self._done.get(step)

    def has(self, step: str, value: str) -> bool:
        return self.get(step) == value

    def clear(self) -> None:
        self._done.clear()

    def put(self, step: str, value: str) -> None:
        self._done[step] = value
        self._file.write_text(json.dumps(self._done, indent=1) + "\n", encoding="utf-8")
