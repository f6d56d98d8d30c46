"""Which edges of a lifecycle really occurred in a search: `lang/edges` says what could, this says what did.

The levels are expanded once more. Codes of the lifecycle's cells before and after each step, with the action, make one number
per transition, and a count of these numbers is all that is kept.
"""

from __future__ import annotations

import numpy as np

from vllm_lifecycle.spec.check.explicit.layout import WORD, Field, Word
from vllm_lifecycle.spec.check.explicit.planes import Index
from vllm_lifecycle.spec.check.explicit.search import Exploration
from vllm_lifecycle.spec.lang.edges import Edge
from vllm_lifecycle.spec.lang.machine import Lifecycle

CHUNK = 1 << 15


def taken_edges(exploration: Exploration, lifecycle: Lifecycle) -> frozenset[Edge]:
    """Edges taken by some step between states of the search, self-loops left out; sound under symmetry."""
    model = exploration.model
    fields = _fields(exploration, lifecycle)
    writers = [a for a in model.machine.actions if lifecycle.var in a.writes]
    if not fields or not writers:
        return frozenset()
    names = {a.name: i for i, a in enumerate(writers)}
    action_of = np.array([names.get(r.instance.action.name, -1) for r in model.rows], np.intp)
    members = model.ground.values[fields[0][0]]
    size = len(members)
    counts = np.zeros(len(writers) * size * size, np.intp)
    for level in exploration.levels:
        for low in range(0, len(level[0]), CHUNK):
            chunk = [w[low : low + CHUNK] for w in level]
            batch = model.expander.expand(chunk)
            action = action_of.take(batch.row)
            at = np.flatnonzero(action >= 0)
            source, action = batch.source.take(at), action.take(at)
            for _, field in fields:
                before = _ordinals(field, [w.take(source) for w in chunk])
                after = _ordinals(field, [w.take(at) for w in batch.words])
                counts += np.bincount((action * size + before) * size + after, minlength=len(counts))
    found = np.flatnonzero(counts).tolist()
    edges = (
        Edge(members[n // size % size], members[n % size], writers[n // size // size].name) for n in found
    )
    return frozenset(edge for edge in edges if edge.source is not edge.target)


def _fields(exploration: Exploration, lifecycle: Lifecycle) -> list[tuple[int, Field]]:
    """The cells of a lifecycle that are not constant, with their fields."""
    model = exploration.model
    found = []
    for cell, (name, args) in enumerate(model.ground.cells):
        fits = name == lifecycle.var and all(
            fixed is None or fixed.value == arg for fixed, arg in zip(lifecycle.index, args, strict=True)
        )
        if fits and cell in model.layout.fields:
            found.append((cell, model.layout.fields[cell]))
    return found


def _ordinals(field: Field, words: list[Word]) -> Index:
    code = words[field.at // WORD] >> np.uint64(field.at % WORD) & np.uint64((1 << field.bits) - 1)
    table = np.zeros(1 << field.bits, np.intp)
    table[: len(field.ordinals)] = field.ordinals
    return table.take(code.view(np.int64))
