"""Is this a scheduler that can be explored at all?  Asked once, before any search, and answered in one line.

What the target does while it is imported and built is not under test: an exception, `sys.exit()` or a loop without end there is a
target that cannot be used, not a finding.  What a call of the scheduler does later is a finding (see `driver`).
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .config import STOCK, Unusable, load, load_class, vllm_version
from .driver import Endless, patience
from .extension import extension_of
from .scope import Scope

IMPORT_SECONDS = 120.0
BUILD_SECONDS = 30.0
"""Far more than an import or a constructor takes on a busy machine."""

__all__ = ["Unusable", "build", "check_connector", "check_target", "find_modules", "portfolio"]


def find_modules() -> None:
    """Let targets be found in the current folder, as `python -m` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def check_target(target: str) -> str:
    """The vLLM release installed, when the class can be imported; raises Unusable."""
    version = vllm_version()
    load_class(STOCK)  # vLLM's own part of the import takes as long as it takes
    try:
        with patience(IMPORT_SECONDS):
            load_class(target)
    except Endless:
        raise Unusable(f"importing {target} does not end within {IMPORT_SECONDS:g} s") from None
    except SystemExit as end:
        raise Unusable(f"importing {target} ends the program: SystemExit({end.code!r})") from None
    return version


def portfolio(target: str, level: str) -> dict[str, Scope]:
    """The scopes by name that are explored on a class of that family at a contract level, when none is named."""
    return {s.name: s for s in extension_of(load_class(target)).portfolio() if s.level == level}


def check_connector(target: str) -> None:
    """Raise Unusable when the name is that of no KV connector class."""
    base = "vllm.distributed.kv_transfer.kv_connector.v1.base"
    try:
        with patience(IMPORT_SECONDS):
            found, wanted = load(target), importlib.import_module(base).KVConnectorBase_V1
    except Endless:
        raise Unusable(f"importing {target} does not end within {IMPORT_SECONDS:g} s") from None
    except SystemExit as end:
        raise Unusable(f"importing {target} ends the program: SystemExit({end.code!r})") from None
    if not issubclass(found, wanted):
        raise Unusable(f"{target} is no KV connector: derive it from {base}.KVConnectorBase_V1")


def build(shop: Any) -> None:
    """Make one scheduler; raises Unusable when its class refuses or never returns."""
    name = shop.cls.__name__
    try:
        with patience(BUILD_SECONDS):
            shop.scheduler()
    except Endless:
        raise Unusable(f"{name}.__init__ does not return within {BUILD_SECONDS:g} s") from None
    except SystemExit as end:
        raise Unusable(f"{name}.__init__ ends the program: SystemExit({end.code!r})") from None
