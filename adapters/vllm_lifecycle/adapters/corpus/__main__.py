"""`python -m vllm_lifecycle.adapters.corpus`: `run`, `count`, `saved`, `keep`, `replay`, `table` and `renew`, with `--out FILE`.

`run` explores a class and `count` exhausts its complete scopes, in the subject's environment; `saved` runs the findings of
explorations as saved tests with the release of its environment; `keep` keeps their sequences, and `replay` plays those that are
kept on the verified scheduler; `table` needs no environment and writes the document from all of them, `renew` parts of it.
Exit code 1 with one line when something is unusable.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from vllm_lifecycle.adapters.vllm.config import Unusable
from vllm_lifecycle.adapters.vllm.correspondence import MissingSeam

from . import complete, replayed, sequences
from .regressions import Outcomes
from .runs import Run
from .table import renewed, table


def run(target: str, seconds: float, out: Path) -> None:
    """Explore one class with the default scopes and save what was found."""
    from vllm_lifecycle.adapters.vllm.explore import explore

    began = time.monotonic()
    result = explore(target, seconds=seconds, progress=lambda line: print(line, file=sys.stderr))
    data = {
        "target": target,
        "version": result.version,
        "seconds": time.monotonic() - began,
        "findings": [{**f.to_json(), "kind": f.kind} for f in result.findings],
        "coverage": [str(c) for c in result.coverage],
    }
    out.write_text(json.dumps(data))


def saved(runs: list[Path], out: Path) -> None:
    """Run the findings of explorations as saved tests with the installed release, and save how they ended."""
    from vllm_lifecycle.adapters.vllm.config import vllm_version

    from .regressions import finding, outcomes

    by_run: dict[str, tuple[str, ...]] = {}
    for path in runs:
        text = path.read_text()
        by_run[Run.read(text).title] = outcomes([finding(f) for f in json.loads(text)["findings"]])
    out.write_text(Outcomes(vllm_version(), by_run).text())


def replay_kept(folder: Path, out: Path) -> None:
    """Play the sequences of a folder on the verified scheduler, with the installed release."""
    from vllm_lifecycle.adapters.vllm.config import vllm_version

    known = sequences.kept(folder)
    if not known:
        raise ValueError(f"{folder} has no sequences: keep those of an exploration there")
    out.write_text(replayed.replay(known, vllm_version()).text(), encoding="utf-8")


def main() -> int:
    """The commands."""
    parser = argparse.ArgumentParser(prog="corpus", description="Which known defects does the explorer find?")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("target")
    running.add_argument("--seconds", type=float, default=240.0)
    running.add_argument("--out", type=Path, required=True)
    counting = commands.add_parser("count")
    counting.add_argument("target")
    counting.add_argument("--seconds", type=float, default=240.0)
    counting.add_argument("--out", type=Path, required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("runs", type=Path, nargs="+")
    keeping.add_argument("--out", type=Path, required=True)
    for name, what in (("replay", "folder"), ("renew", "document")):
        on = commands.add_parser(name)
        on.add_argument(what, type=Path)
        on.add_argument("--counts", type=Path, nargs="*", default=[])
        on.add_argument("--replayed", type=Path, nargs="*", default=[])
        on.add_argument("--out", type=Path, required=True)
    for name in ("saved", "table"):
        telling = commands.add_parser(name)
        telling.add_argument("runs", type=Path, nargs="+")
        telling.add_argument("--outcomes", type=Path, nargs="*", default=[])
        telling.add_argument("--counts", type=Path, nargs="*", default=[])
        telling.add_argument("--replayed", type=Path, nargs="*", default=[])
        telling.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()

    def tell(line: str) -> None:
        print(line, file=sys.stderr)

    try:
        if asked.command == "run":
            run(asked.target, asked.seconds, asked.out)
        elif asked.command == "count":
            asked.out.write_text(complete.text(complete.counts(asked.target, asked.seconds, tell)))
        elif asked.command == "saved":
            saved(asked.runs, asked.out)
        elif asked.command == "keep":
            asked.out.write_text(sequences.lines([p.read_text() for p in asked.runs]), encoding="utf-8")
        elif asked.command == "replay":
            replay_kept(asked.folder, asked.out)
        else:
            exact = [c for path in asked.counts for c in complete.read(path.read_text())]
            ours = [replayed.Replayed.read(path.read_text()) for path in asked.replayed]
            if asked.command == "renew":
                asked.out.write_text(renewed(asked.document.read_text(encoding="utf-8"), exact, ours))
            else:
                told = [Outcomes.read(path.read_text()) for path in asked.outcomes]
                runs = [Run.read(path.read_text()) for path in asked.runs]
                asked.out.write_text(table(runs, told, exact, ours))
    except (Unusable, MissingSeam, ValueError, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
