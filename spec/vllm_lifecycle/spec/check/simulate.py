"""Random walks: runs of a seed through scopes that are too large to explore, judged by the reference evaluator.

A walk takes at each state one of the enabled actions at random, then one of its instances, so that actions with many
parameter values do not crowd out the others. Answers are one-sided: a violation is a counterexample (not a shortest one), but
a property that no walk violates is not established.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from vllm_lifecycle.spec.check.explicit.model import Model
from vllm_lifecycle.spec.check.explicit.rows import Row
from vllm_lifecycle.spec.check.explicit.search import scope_text
from vllm_lifecycle.spec.check.explicit.traces import in_order_of_use, replay, single, state_at
from vllm_lifecycle.spec.check.verdict import Outcome, Verdict
from vllm_lifecycle.spec.lang import evaluate as ev
from vllm_lifecycle.spec.lang.machine import Machine, Property


def simulate(
    machine: Machine,
    domain: ev.Domain,
    properties: Iterable[Property] | None = None,
    *,
    walks: int = 20,
    steps: int = 100,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    scope: str = "",
) -> tuple[Verdict, ...]:
    """Verdicts of some random walks on state and step properties; `progress` is told the number of each walk."""
    model = Model(machine, domain)
    claims = [p for p in (machine.properties if properties is None else properties) if p.kind != "progress"]
    where = scope or scope_text(domain)
    refuted: dict[str, tuple[Row, ...]] = {}
    taken = 0
    for number in range(walks):
        if progress is not None:
            progress(number)
        pick = random.Random(f"{seed}/{number}")
        rows: list[Row] = []
        before, words = None, model.initial()
        while len(rows) <= steps:
            state = model.decode(state_at(words, 0))
            context = {"state": ev.Context(domain, state)}
            if before is not None:
                context["step"] = ev.Context(domain, before, state)
            for prop in claims:
                if prop.name not in refuted and prop.kind in context and _falls(prop, context[prop.kind]):
                    refuted[prop.name] = tuple(rows)
            batch = model.expander.expand(words)
            if not len(batch.row):
                break
            by_action: dict[str, list[int]] = {}
            for i, row in enumerate(batch.row.tolist()):
                by_action.setdefault(model.rows[row].instance.action.name, []).append(i)
            at = pick.choice(by_action[pick.choice(sorted(by_action))])
            rows.append(model.rows[int(batch.row[at])])
            before, words = state, single(state_at(batch.words, at))
        taken += len(rows)
    numbers = {"walks": walks, "steps": taken, "seed": seed}
    verdicts = []
    for prop in claims:
        if prop.name in refuted:
            trace = tuple(replay(model, in_order_of_use(model, list(refuted[prop.name])))[0])
            verdicts.append(
                Verdict(prop.name, Outcome.REFUTED, "simulate", where, trace=trace, numbers=numbers)
            )
        else:
            reason = f"{walks} random walks of up to {steps} steps do not violate it"
            verdicts.append(
                Verdict(prop.name, Outcome.NOT_ESTABLISHED, "simulate", where, reason=reason, numbers=numbers)
            )
    return tuple(verdicts)


def _falls(prop: Property, context: ev.Context) -> bool:
    return any(True for _ in ev.violations(prop.params, prop.body, context))
