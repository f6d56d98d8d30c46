"""What `lifecycle_check` does, apart from pytest: names for classes, scopes by name, and whose finding it is.

A finding belongs to the class under test when its sequence does not bring down the same property on the vLLM class that it is
derived from: one replay each, no second search. Rejected: comparing with a list of known findings (a class made in a test has no
place to keep one; the command line has `--baseline`).  With a connector of the user's, the findings are those that are the
connector's fault.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from vllm_lifecycle.adapters.vllm import explore as explorer
from vllm_lifecycle.adapters.vllm import given
from vllm_lifecycle.adapters.vllm.config import STOCK, Unusable, load_class
from vllm_lifecycle.adapters.vllm.correspondence import MissingSeam
from vllm_lifecycle.adapters.vllm.explore import Exploration
from vllm_lifecycle.adapters.vllm.report import Finding
from vllm_lifecycle.adapters.vllm.rerun import rerun
from vllm_lifecycle.adapters.vllm.saved import Saved
from vllm_lifecycle.adapters.vllm.scope import Level, Scope
from vllm_lifecycle.adapters.vllm.target import check_connector, check_target, portfolio

UPSTREAM = ("vllm", "vllm_omni")


class Refused(Exception):
    """The exploration cannot be done; one line with the repair."""


def explore(
    scheduler: type[Any] | str,
    *,
    scope: str | Scope | Sequence[str | Scope],
    contract: str,
    seconds: float,
    seed: int,
    connector: type[Any] | str | None,
    accept: Collection[str],
    inherited: bool,
) -> tuple[Exploration, list[Finding]]:
    """The exploration, and those findings that fail the test; raises Refused."""
    target = named(scheduler)
    if contract not in get_args(Level):
        raise Refused(f"unknown contract {contract!r}: choose {' or '.join(get_args(Level))}")
    try:
        check_target(target)
        wanted = scopes(scope, portfolio(target, contract))
        if connector is not None:
            check_connector(named(connector))
            wanted = [s.judging(named(connector)) for s in wanted if s.connector]
            if not wanted:
                raise Refused(
                    "none of these scopes has a connector: leave the scope out, or give one that has"
                )
        found = explorer.explore(target, wanted, seed, seconds)
        base = upstream(load_class(target))
        told = [f for f in found.findings if f.claim not in accept]
        if connector is not None and not inherited:
            mine = [f for f in told if f.fault == "connector"]
        else:
            mine = [f for f in told if inherited or not is_inherited(f, base)]
    except (Unusable, MissingSeam) as why:
        raise Refused(str(why)) from None
    return found, mine


def named(cls: type[Any] | str) -> str:
    """`pkg.mod:Class` of a class; one that cannot be imported by its name is given one."""
    if isinstance(cls, str):
        return STOCK if cls == "vllm" else cls
    there = getattr(sys.modules.get(cls.__module__), cls.__qualname__, None)
    return f"{cls.__module__}:{cls.__qualname__}" if there is cls else given.give(cls)


def scopes(scope: str | Scope | Sequence[str | Scope], on_offer: Mapping[str, Scope]) -> list[Scope]:
    """The scopes meant, all on offer when none is; raises Refused for a name that does not exist."""
    out = []
    for one in (scope,) if isinstance(scope, str | Scope) else scope:
        if isinstance(one, str) and one not in on_offer:
            raise Refused(f"unknown scope {one!r}: choose from {', '.join(on_offer)}")
        out.append(on_offer[one] if isinstance(one, str) else one)
    return out or list(on_offer.values())


def upstream(cls: type[Any]) -> type[Any] | None:
    """The nearest class of vLLM that the class is derived from; None for vLLM's own classes."""
    for base in cls.__mro__:
        if base.__module__.split(".")[0] in UPSTREAM:
            return base if base is not cls else None
    return None


def is_inherited(finding: Finding, base: type[Any] | None) -> bool:
    """Whether the same sequence brings down the same property on the upstream class."""
    if base is None:
        return False
    same = replace(Saved.of(finding), target=f"{base.__module__}:{base.__qualname__}")
    return rerun(same).fell
