"""Token counters: computed, known, awaited from steps in flight, drafted.

`computed` counts tokens whose KV is computed or being computed by a dispatched step. A row that computes the last known token
samples: each output it may bring is a placeholder until the step is answered. `last` says whether the row is such a one; a
row without it is a chunk of the prompt. Counters are per request and bounded by a scope; the proof leaves the bound open.
"""

from __future__ import annotations

from vllm_lifecycle.spec.lang.build import Expr, State, every, ite
from vllm_lifecycle.spec.lifecycles.vocabulary import max_tokens


def require_tokens(s: State, r: Expr, last: object) -> None:
    """Guard of a row: it computes at least one token, and its outputs fit the model length."""
    target = s.known[r] + s.placeholders[r]
    s.require(s.computed[r] < target, "something is left to compute")
    s.require(every(last) | (s.computed[r] + 1 < target), "a chunk leaves something for later")
    s.require(~every(last) | (target + 1 + s.drafts[r] <= max_tokens), "the outputs fit the model length")


def schedule_tokens(s: State, k: Expr, r: Expr, last: object) -> None:
    """A row computes up to everything known or awaited (`last`), or one token of a longer rest.

    Drafts ride along with the last token; each may be accepted, so each is awaited like the sampled one.
    """
    samples = every(last)
    awaited = ite(samples, s.drafts[r] + 1, 0)
    s.computed[r] = ite(samples, s.known[r] + s.placeholders[r] + s.drafts[r], s.computed[r] + 1)
    s.placeholders[r] = s.placeholders[r] + awaited
    s.row_samples[k, r] = awaited
    s.drafts[r] = 0


def credit_tokens(s: State, k: Expr, r: Expr, accepted: Expr) -> None:
    """A current row is answered with `accepted` tokens of those awaited; refused drafts are rolled back."""
    awaited = s.row_samples[k, r]
    s.known[r] = s.known[r] + accepted
    s.placeholders[r] = s.placeholders[r] - awaited
    s.computed[r] = s.computed[r] - (awaited - accepted)
    s.row_samples[k, r] = 0
