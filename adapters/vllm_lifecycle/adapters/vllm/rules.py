"""The rules of the engine's contract, by the words in which a breach is told: one text each, whoever finds the breach.

Those of the client and the worker are the engine loop's; those of the connector are vLLM's interface for KV connectors.
"""

from __future__ import annotations

ID_IN_USE = "an id in use is not sent again"
ANSWERED_IN_ORDER = "steps are answered in the order of their dispatch"
ANSWER_OF_A_STEP = "an answer belongs to a step in flight"
EVERY_ID_ANSWERED = "the worker answers for every scheduled id"
A_TOKEN_IS_SAMPLED = "a request whose tokens are all computed samples one"
REPORT_OF_A_TRANSFER = "a report belongs to a transfer that was announced and not yet reported"
HYBRID_FAILS_BY_REQUEST = "a load failure of a hybrid model is reported by request"
TOKEN_LEFT = "a synchronous match leaves a token to compute"
MATCH_NOT_NEGATIVE = "a match is not negative"
NOTHING_BETWEEN_STEPS = "a match of nothing is not loaded between steps"
MATCH_WITHIN_REQUEST = "a match is no longer than the request"
DECIDED_IN_THE_END = "a match is decided in the end"
HOOKS_RETURN = "no exception leaves a hook of the connector"
