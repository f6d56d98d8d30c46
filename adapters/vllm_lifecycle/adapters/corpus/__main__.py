"""`python -m vllm_lifecycle.adapters.corpus run TARGET --seconds N --out FILE`, and `... table FILE... --out FILE`.

`run` needs the subject's environment, `table` none.  Exit code 1 with one line when something is unusable.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from vllm_lifecycle.adapters.vllm.config import Unusable
from vllm_lifecycle.adapters.vllm.correspondence import MissingSeam

from .table import Run, table


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


def main() -> int:
    """The two commands."""
    parser = argparse.ArgumentParser(prog="corpus", description="Which known defects does the explorer find?")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("target")
    running.add_argument("--seconds", type=float, default=240.0)
    running.add_argument("--out", type=Path, required=True)
    telling = commands.add_parser("table")
    telling.add_argument("runs", type=Path, nargs="+")
    telling.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    try:
        if asked.command == "run":
            run(asked.target, asked.seconds, asked.out)
        else:
            asked.out.write_text(table([Run.read(path.read_text()) for path in asked.runs]))
    except (Unusable, MissingSeam, ValueError, OSError) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
