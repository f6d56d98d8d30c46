"""Sessions that wait with the blocks of their last turn: whom a pass goes by for their sake, and which of them gives way.

They keep blocks while nothing of them runs, so that one that does not fit may wait for another one behind it, or for a client.
Rejected: to let the head of the queue block the rest, as for requests without blocks (two sessions would wait for ever).
"""

from __future__ import annotations

from vllm_lifecycle.spec.lifecycles.vocabulary import Status
from vllm_lifecycle.statemachine.kernel.kernel import Kernel
from vllm_lifecycle.statemachine.kernel.seq import Seq
from vllm_lifecycle.statemachine.kernel.sessions import SessionKernel
from vllm_lifecycle.statemachine.scheduling.plan import Plan
from vllm_lifecycle.statemachine.scheduling.world import World


def still(kernel: Kernel, plan: Plan) -> bool:
    """Nothing runs, loads or is in flight, so that no block will come back by itself."""
    return not (plan.tokens or kernel.running or kernel.loads or kernel.steps.outstanding)


def passed_by(kernel: Kernel, plan: Plan, seq: Seq) -> bool:
    """Who does not fit does not end the pass: a session; and anybody while nothing runs and an idle session may be why."""
    if seq.held_kv and seq not in kernel.loads:
        return kernel.holding is not kernel.waiting or still(kernel, plan)
    return bool(kernel.idle) and still(kernel, plan)


def make_room(kernel: Kernel, world: World) -> None:
    """Sessions wait for blocks that others of them keep: the one that came last gives way, and computes again later."""
    kept = [
        seq
        for seq in kernel.holding
        if seq.held_kv and seq.status is Status.WAITING and seq not in kernel.loads
    ]
    if len(kept) > 1 and isinstance(kernel, SessionKernel):
        world.encoder_free(kept[-1])
        kernel.give_up_kept_blocks(kept[-1])
