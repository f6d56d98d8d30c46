"""Why a test of vLLM's fails with the verified scheduler: each needs a reason, or the run fails.

A reason names what the test reads or asks for that the verified scheduler does not have on purpose, with the property or the
defect that is behind it.  Patterns are those of `fnmatch` on the test's name after the file's folder.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

REASONS: dict[tuple[str, str], str] = {}
"""(release or *, pattern of the test's name) -> reason."""


def reason_for(release: str, test: str) -> str:
    """The reason; empty when there is none."""
    for (of_release, pattern), reason in REASONS.items():
        if of_release in ("*", release) and fnmatchcase(test, f"*{pattern}"):
            return reason
    return ""
