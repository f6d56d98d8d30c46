"""Writing result files: whole or not at all, and never over something that this program did not write.

A text is written beside its place and renamed into it, so a full disk or Ctrl-C never leaves half a file. A file that is already
there is replaced only when it carries the mark of its kind in its first lines. Rejected: a `--force` option (a wrong path would
then destroy the user's work; moving the file is as quick).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

HEAD = 400
"""Bytes in which a file's mark must stand."""


class NotWritten(Exception):
    """A result file cannot be written; the text is one line with the repair."""


def check_folder(folder: Path) -> None:
    """Make the folder ready for results before the work starts; raises NotWritten when that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as why:
        raise NotWritten(f"cannot write into {folder} ({why.strerror}): name another folder") from None


def check_place(path: Path, mark: str) -> None:
    """Raise NotWritten when something that does not carry the mark is already there."""
    try:
        with path.open("rb") as there:
            head = there.read(HEAD)
    except FileNotFoundError:
        return
    except OSError as why:
        raise NotWritten(f"cannot write {path} ({why.strerror}): name another file") from None
    if mark.encode() not in head:
        raise NotWritten(f"{path} was not written by vllm-lifecycle: move it away, or name another place")


def write(path: Path, text: str, mark: str) -> None:
    """Put the text into its place at once; raises NotWritten and leaves what was there."""
    check_place(path, mark)
    beside = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as new:
            beside = new.name
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except OSError as why:
        raise NotWritten(f"cannot write {path} ({why.strerror}): name another place") from None
    finally:
        if beside:
            with contextlib.suppress(FileNotFoundError):
                Path(beside).unlink()


def write_all(folder: Path, texts: Mapping[str, tuple[str, str]]) -> list[Path]:
    """Write several files (name -> text, mark) into a folder; nothing is written when one place is taken."""
    check_folder(folder)
    places = {name: folder / name for name in texts}
    for name, (_, mark) in texts.items():
        check_place(places[name], mark)
    for name, (text, mark) in texts.items():
        write(places[name], text, mark)
    return list(places.values())
