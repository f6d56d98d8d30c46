"""Cases by name: what a random workload once found, made small, or seldom meets."""

from __future__ import annotations

from tests.differential.settings import Abort, Add, Answer, Broken, Case, Received, Reset, Sent, Setup, Step


def busy(*numbers: int) -> tuple[Add, ...]:
    """Requests that take the slots for two steps."""
    return tuple(Add(f"r{number}", own=1, answer=2) for number in numbers)


SHARER = Case(
    Setup(asynchronous=True, connector=True, load_failures="fail"),
    (
        *busy(24, 36, 37, 39, 40, 41),
        Add("r42", own=1, undecided=1),
        Step(),
        Add("r43", own=1),
        Add("r44", own=1, shared=4, match=1),
        Answer(),
        Step(),
        Step(),
        Answer(),
        Add("r45", own=1, shared=5, match=5, between=True, undecided=1),
        Step(),
        Broken("r44"),
        Answer(),
        Step(),
        Answer(),
    ),
)
"""A load that began after the step of the failed one shares its block: it fails as well, although its own load does not."""

AGAIN = Case(
    Setup(caching=False, asynchronous=True, encoder="encoder-decoder"),
    (
        Step(),
        Add("r39", own=5, images=1),
        Step(),
        Answer(),
        Reset(running=True),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A forced reset while a step reads encoder entries: they are given back with its answer, and only then is there room again."""

RETRIED = Case(
    Setup(blocks=14, connector=True),
    (
        Add("r0", own=40, match=32, between=True, answer=2),
        Step(),
        Answer(),
        Broken("r0"),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A load of which nothing came is begun again: the request fits, but not beside itself."""

ABORTED = Case(
    Setup(connector=True),
    (
        Add("r0", own=9, match=6, between=True, hold=True),
        Step(),
        Answer(),
        Abort(("r0",)),
        Step(),
        Answer(),
        Received("r0"),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A client leaves during the load of a request whose blocks are to be sent as well."""

SHARERS = Case(
    Setup(connector=True),
    (
        Add("r0", own=1, shared=4, match=1),
        Add("r1", own=1, shared=4),
        Step(),
        Broken("r0"),
        Answer(),
        Step(),
    ),
)
"""Two requests share a block, of which one token was to be loaded: random workloads seldom do that."""

BLOCKLESS = Case(
    Setup(connector=True),
    (
        Add("r8", own=16, match=1, between=True),
        Add("r10", own=12, shared=16, match=1, between=True),
        Add("r12", own=19, answer=3),
        Add("r15", own=7, shared=17, answer=2),
        Add("r16", own=3, shared=17, family=1, answer=2),
        Broken("r8"),
        Step(),
        Answer(),
        Received("r8"),
        Step(),
        Answer(),
        Step(),
    ),
)
"""A request has lost its blocks with its load, and waits while another one loads."""

MANY = Case(
    Setup(connector=True, load_failures="fail"),
    (
        *(Add(f"r{number}", own=2, match=1) for number in range(8)),
        Step(),
        *(Broken(f"r{number}", block=1) for number in range(8)),
        Answer(),
    ),
)
"""So many loads fail in one step that the order of a set is not that of arrival, but once in forty thousand runs."""

LAST = Case(
    Setup(connector=True, load_failures="fail"),
    (
        Add("r40", own=6, match=5, between=True, hold=True),
        Add("r46", own=2, match=1, between=True),
        Broken("r40", block=3),
        Broken("r46"),
        Step(),
        Answer(),
        Received("r46"),
        Sent("r40"),
        Step(),
        Received("r40"),
        Answer(),
        Add("r49", own=1),
        Step(),
    ),
)
"""A load and a send of one request, and a load of another, are done with one answer: blocks go with the last transfer."""
