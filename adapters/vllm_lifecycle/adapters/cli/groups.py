"""The whole command line: the plain commands, and the groups and commands that have a module of their own.

A module that offers commands is listed here, and nowhere else; importing it must stay light.
"""

from __future__ import annotations

from vllm_lifecycle.adapters.cli import docs, drift
from vllm_lifecycle.adapters.cli.commands import app

app.add_typer(docs.app, name="docs")
app.command()(drift.drift)

__all__ = ["app"]
