"""What an operator may set for the verified scheduler beyond vLLM's own configuration: environment variables `VLLM_LIFECYCLE_*`.

VLLM_LIFECYCLE_POLICY               package.module:Class, a `Policy` of one's own in place of the configured one
VLLM_LIFECYCLE_TRANSFER_DEADLINE    seconds after which a transfer of a finished request counts as lost and its blocks are reused;
                                    not set: never. The risk: a remote party that is only late then reads, or overwrites, blocks
                                    that belong to somebody else by then.
"""

from __future__ import annotations

import os
from importlib import import_module
from time import monotonic

from vllm_lifecycle.adapters.vllm.verified.breaches import logger
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.policies.fcfs import FCFS
from vllm_lifecycle.statemachine.policies.policy import Policy
from vllm_lifecycle.statemachine.policies.priority import Priority

POLICY = "VLLM_LIFECYCLE_POLICY"
DEADLINE = "VLLM_LIFECYCLE_TRANSFER_DEADLINE"


def policy(configured: str) -> Policy:
    """The policy to follow: the operator's, or the configured one; ValueError says in one line what is wrong with the former."""
    target = os.environ.get(POLICY)
    if not target:
        return {FCFS.name: FCFS, Priority.name: Priority}[configured]()
    module, _, name = target.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{POLICY}={target} cannot be loaded ({error}): give package.module:Class") from None
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(f"{POLICY}={target} is no policy: derive the class from {Policy.__module__}:Policy")
    return found()


def deadline() -> float | None:
    """Seconds that a transfer of a finished request may take; None: as long as it wants. ValueError for anything but a time."""
    given = os.environ.get(DEADLINE)
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(f"{DEADLINE}={given} is no number of seconds above 0: unset it to wait for ever")
    return seconds


def give_up(kernel: Kernel, seconds: float) -> None:
    """Transfers of finished requests that take longer count as lost, and a warning says so."""
    for seq, kind in kernel.give_up_transfers(monotonic() - seconds):
        logger.warning(
            "The %s of request %s took over %g s: it counts as lost, its blocks are reused",
            kind.name.lower(),
            seq.id,
            seconds,
        )
