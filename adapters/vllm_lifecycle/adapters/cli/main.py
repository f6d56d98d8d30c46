"""Entry point: every way a command can end becomes one exit code and, on an error, one line.

0 holds, 1 usage or internal error, 2 refuted, 3 not established. The parser's own exit code for usage errors is 2, which would
read as "refuted", so it runs in the mode that raises, and the mapping is here. `--debug` anywhere shows the traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from vllm_lifecycle.adapters.cli.errors import UsageProblem
from vllm_lifecycle.spec.check.verdict import EXIT_CODES, USAGE_ERROR, Outcome
from vllm_lifecycle.spec.lang.sorts import DefinitionError

PROGRAM = "vllm-lifecycle"
PARSER_INTERRUPTED = 130
"""What the parser answers after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and answer its exit code."""
    from vllm_lifecycle.adapters.cli.groups import app

    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        code = app(args=[a for a in given if a != "--debug"], prog_name=PROGRAM, standalone_mode=False)
    except (UsageProblem, DefinitionError) as problem:
        if debug:
            raise
        return _complain(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE_ERROR
    except Exception as error:
        if debug:
            raise
        usage = getattr(error, "format_message", None)  # the parser's usage errors, whatever class they have
        if usage is not None:
            return _complain(f"{usage()} (see {PROGRAM} --help)")
        return _complain(f"internal error: {type(error).__name__}: {error} (add --debug for the traceback)")
    if code == PARSER_INTERRUPTED:
        return _complain("interrupted before anything was checked", EXIT_CODES[Outcome.NOT_ESTABLISHED])
    return code if isinstance(code, int) else 0


def _complain(text: str, code: int = USAGE_ERROR) -> int:
    print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
