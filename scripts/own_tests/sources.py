"""Gets the tests of a release: its source distribution, through pip, and from it only what is run.

pip prepares the metadata of a source distribution that it downloads, which runs vLLM's setup script.  With the device "empty"
that builds nothing; what the script imports is installed into a folder of its own, so that the environment stays as it is.
Rejected: asking an index directly (pip knows the user's indexes), building isolated (downloads another torch).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from vllm_env.make import Env, EnvError

SETUP_NEEDS = ("setuptools_scm", "setuptools_rust")
PARTS = (
    "core",
    "kv_connector/unit",
    "simple_kv_offload",
    "ec_connector/unit",
    "streaming_input",
    "structured_output",
    "spec_decode",
)
"""Folders of vLLM's `tests/v1` in which schedulers are made. Not taken: what starts an engine (engine, e2e) and so wants weights;
the conftest of the whole tree, which wants models and GPUs."""
_INSIDE = re.compile(r"tests/(__init__\.py|utils\.py|v1/.*\.py)")
"""What is taken out of the source distribution: helpers are all over `tests/v1`."""
NEEDS = ("msgpack", "torchvision==0.28.0")
"""Packages that tests import and the environments lack, installed without dependencies into a folder of their own."""
_NAMES = re.compile(r"(?<!\w)(Async)?Scheduler(?!\w)|create_scheduler")
"""How a file that makes a scheduler names it."""


def release_of(env: Env) -> str:
    """The release of vLLM in the environment."""
    return env.subject.releases[0].partition("==")[2]


def sources(env: Env, folder: Path) -> Path:
    """The folder that holds `tests/` of the release, fetched when it is not there; raises EnvError."""
    release = release_of(env)
    root = folder / f"vllm-{release}"
    if not (root / "tests").is_dir():
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(_download(env, release, folder), root)
    if not (root / "tests" / "v1" / "core").is_dir():
        raise EnvError(f"the source distribution of vLLM {release} has no tests/v1/core: nothing can be run")
    return root


def needs(env: Env, folder: Path) -> Path:
    """The folder with packages that only the tests import, installed when it is not there; raises EnvError."""
    target = folder / f"needs-{release_of(env)}"
    if not target.is_dir():
        _pip(env, {}, "install", "--quiet", "--no-deps", "--target", str(target), *NEEDS)
    return target


def _download(env: Env, release: str, folder: Path) -> Path:
    setup = folder / f"setup-{release}"
    _pip(env, {}, "install", "--quiet", "--target", str(setup), *SETUP_NEEDS)
    there = {"PYTHONPATH": str(setup), "VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": release}
    how = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder))
    _pip(env, there, "download", *how, f"vllm=={release}")
    shutil.rmtree(setup, ignore_errors=True)
    found = sorted(folder.glob(f"vllm-{release}*.tar.gz"))
    if not found:
        raise EnvError(f"pip saved no source distribution of vLLM {release} in {folder}")
    return found[0]


def _pip(env: Env, more: dict[str, str], *arguments: str) -> None:
    command = [str(env.python), "-m", "pip", *arguments]
    done = subprocess.run(
        command, env=os.environ | more, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if "Error" in line or "ERROR" in line]
        raise EnvError(f"pip {arguments[0]} failed: {told[-1].strip() if told else 'see pip'}")


def _unpack(archive: Path, root: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = member.name.partition("/")[2]
            if member.isfile() and _INSIDE.fullmatch(inside):
                target = root / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
    archive.unlink()


def scheduler_side(root: Path) -> list[str]:
    """The test files that make a scheduler, or that speak of one and have a helper beside them that makes one."""
    found = []
    for part in PARTS:
        for file in root.glob(f"tests/v1/{part}/**/test_*.py"):
            text = file.read_text(encoding="utf-8")
            if _NAMES.search(text) or ("cheduler" in text and _helped(file)):
                found.append(str(file.relative_to(root)))
    return sorted(found)


def _helped(file: Path) -> bool:
    helpers = [f for f in file.parent.glob("*.py") if not f.name.startswith("test_")]
    return any(_NAMES.search(f.read_text(encoding="utf-8")) for f in helpers)
