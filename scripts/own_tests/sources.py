"""Gets the tests of a release: its source distribution, through pip, and from it only what is run.

pip prepares the metadata of a source distribution that it downloads, which runs vLLM's setup script.  With the device "empty"
that builds nothing; what the script imports is installed into a folder of its own, so that the environment stays as it is.
Rejected: asking an index directly (pip knows the user's indexes), building isolated (downloads another torch).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from vllm_env.make import Env, EnvError

SETUP_NEEDS = ("setuptools_scm", "setuptools_rust")
PARTS = ("tests/__init__.py", "tests/v1/__init__.py", "tests/v1/core/", "tests/v1/kv_connector/")
"""What is taken out of the source distribution; the conftest of the whole tree wants models and GPUs and is left out."""


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


def _download(env: Env, release: str, folder: Path) -> Path:
    needs = folder / f"setup-{release}"
    _pip(env, {}, "install", "--quiet", "--target", str(needs), *SETUP_NEEDS)
    there = {"PYTHONPATH": str(needs), "VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": release}
    how = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder))
    _pip(env, there, "download", *how, f"vllm=={release}")
    shutil.rmtree(needs, ignore_errors=True)
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
            if member.isfile() and inside.startswith(PARTS):
                target = root / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                target.write_bytes(content.read())
    archive.unlink()


def scheduler_side(root: Path) -> list[str]:
    """The test files that make or read a scheduler, relative to the root."""
    files = [*root.glob("tests/v1/core/**/test_*.py"), *root.glob("tests/v1/kv_connector/unit/**/test_*.py")]
    return sorted(str(f.relative_to(root)) for f in files if "cheduler" in f.read_text(encoding="utf-8"))
