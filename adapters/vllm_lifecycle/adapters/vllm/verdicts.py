"""The specification's own claims, judged on observed states of a real scheduler.

`Judge` selects the claims that an observation can decide (every variable they read is bound, in the modules of the
scope), compiles them once, and gives the violations of a state and of the call that led to it.  Claims that only serve
the proof (`lemma`) speak of bookkeeping that vLLM does not keep and are not judged.  Count lemmas are judged too,
and that no counter is negative.  A claim about the truth (a ghost) is reported before one about bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_lifecycle.spec.lang import terms
from vllm_lifecycle.spec.lang.machine import Count, Machine, Property
from vllm_lifecycle.spec.lang.sorts import IntSort
from vllm_lifecycle.spec.lang.sparse import Cells, Check, Sparse, compile_claim, compile_count, parameters
from vllm_lifecycle.spec.lifecycles.system import SYSTEM
from vllm_lifecycle.spec.lifecycles.vocabulary import Flight

from .binding import BOUND, bind, constants, individuals
from .events import Event, Schedule
from .questions import POLICY, PROMISES, policy_violations
from .scope import Scope
from .snapshot import Snapshot
from .subject import Subject
from .violation import Violation

SURVIVAL = ("the_engine_survives_every_breach", "the_engine_survives_every_mishap")
SURVIVES = "the_engine_survives_every_end_of_a_request"
SURVIVES_EVENT = "the_engine_never_dies"
STUCK = "something_that_fits_is_eventually_scheduled"
LEAK = "a_finished_request_is_eventually_freed"
KEEPS_ORDER = "requests_that_stay_waiting_keep_their_order"
GOES_ON = "a_pass_goes_on_after_a_preemption"
QUESTIONS = (
    frozenset(
        {
            "running_and_loading_requests_fit_the_slots",
            "a_request_can_fit_an_empty_pool",
            GOES_ON,
            KEEPS_ORDER,
            "a_request_that_ended_badly_is_not_waiting_to_be_shipped",
            "a_handoff_names_some_block",
            "a_request_handed_off_at_its_end_ships_all_its_blocks",
            "a_trigger_mark_belongs_to_a_live_request",
            "the_output_carries_the_parameters_of_every_transfer",
            "only_a_live_request_is_polled_for_or_has_a_chunk",
        }
    )
    | POLICY
    | PROMISES
)
"""Claims whose fall leaves the scheduler's books in order: a sequence may go on after them."""
NOT_OBSERVED = {
    "a_dispatched_step_holds_the_blocks_of_its_rows": "vLLM keeps no holds of steps; stream order stands for them",
    "the_engine_survives_every_breach": "decided when an exception leaves the scheduler",
    "the_engine_survives_every_mishap": "decided when an exception leaves the scheduler",
    SURVIVES: "decided when an exception leaves the scheduler",
}


@dataclass(frozen=True)
class _Claim:
    of: Property
    check: Check
    truth: bool


class Judge:
    """Judges the states of one scope."""

    def __init__(
        self, scope: Scope, further: frozenset[str] = frozenset(), machine: Machine = SYSTEM
    ) -> None:
        self.scope = scope
        self.machine = machine
        self.bound = frozenset(BOUND) | further
        self.claims: list[_Claim] = []
        self.unjudged: dict[str, str] = {}
        for claim in machine.properties:
            why = self._why_not(claim)
            if why:
                self.unjudged[claim.name] = why
                continue
            truth = any(machine.var(name).ghost for name in claim.reads)
            self.claims.append(_Claim(claim, compile_claim(machine, claim), truth))
        self.claims.sort(key=lambda c: not c.truth)
        self.counts = [(c, compile_count(machine, c)) for c in machine.counts if not self._count_unfit(c)]
        read = {name for known in self.claims for name in known.of.reads}
        read |= {name for c, _ in self.counts for name in (c.counter, *terms.reads(c.member))}
        read |= {"flight", "preempted_in_pass"} | ({"enc_used"} if scope.encoder else set())
        self.names = frozenset(read) & self.bound
        self.numbers = sorted(n for n in self.names if isinstance(machine.var(n).sort, IntSort))

    def _why_not(self, claim: Property) -> str:
        if claim.kind == "progress":
            return "judged by the fair continuation"
        if claim.lemma:
            return "a lemma of the proof"
        if claim.name in NOT_OBSERVED:
            return NOT_OBSERVED[claim.name]
        missing = sorted(claim.reads - self.bound)
        if missing:
            return f"not observed: {', '.join(missing)}"
        modules = {self.machine.var(name).module for name in claim.reads}
        if "encoder" in modules and self.scope.encoder != "decoder-only":
            return "no encoder cache in this scope"
        return ""

    def _count_unfit(self, count: Count) -> bool:
        """Counters that are not observed, or not comparable in this scope (windows leave blocks, no entries)."""
        if {count.counter, *terms.reads(count.member)} - self.bound:
            return True
        return count.counter == "enc_used" and self.scope.encoder != "decoder-only"

    def violations(
        self,
        driver: Subject,
        event: Event,
        before: Snapshot | None,
        old: Sparse | None,
        now: Snapshot,
        new: Sparse,
    ) -> list[Violation]:
        """What falls in the state `new`, or in the call from `old` to it; truth first."""
        people, numbers = individuals(driver, now), constants(driver)
        found: list[Violation] = []
        for claim in self.claims:
            if claim.of.kind == "state":
                falls = claim.check(new, new, people, numbers)
            elif old is None:
                continue
            elif claim.of.name == KEEPS_ORDER:
                falls = claim.check({**old, "before": _still_together(old, new)}, new, people, numbers)
            elif claim.of.name == GOES_ON:
                middle = self._end_of_pass(driver, event, before, now, new)
                falls = claim.check(middle, new, people, numbers) if middle is not None else []
            else:
                falls = claim.check(old, new, people, numbers)
            found += [self._violation(claim.of, binding) for binding in falls]
        for count, check in self.counts:
            for falls_at in check(new, new, people, numbers):
                where = parameters(count.args, falls_at)
                text = f"{count.doc.strip()} {count.counter} is {falls_at['is']}, counted: {falls_at['counted']}."
                found.append(Violation(f"{count.counter}_is_counted_right", where, text))
        found += self._ranges(new)
        found += driver.promises()
        if self.scope.policy_properties:
            found += policy_violations(driver, event, now)
        return found

    def _violation(self, claim: Property, binding: dict[str, object]) -> Violation:
        where = parameters(claim.params, binding)
        kinds = [str(getattr(v, "name", "")) for v in binding.values() if hasattr(v, "name")]
        return Violation(
            claim.name,
            where,
            f"{claim.doc.strip()} Not so for {where}." if where else claim.doc.strip(),
            "/".join(kinds),
        )

    def _end_of_pass(
        self, driver: Subject, event: Event, before: Snapshot | None, now: Snapshot, new: Sparse
    ) -> Sparse | None:
        """The state at the end of a pass that preempted somebody, just before its step is dispatched."""
        if not isinstance(event, Schedule) or before is None or not driver.truth.steps:
            return None
        ran = {(r.rid, r.epoch) for r in before.requests if r.status == "RUNNING"}
        if not any(r.status == "PREEMPTED" and (r.rid, r.epoch) in ran for r in now.requests):
            return None
        slot = driver.truth.steps[-1].number % self.scope.depth
        whole: Cells = {(rid,): n for rid, n in _awaiting_their_last(driver, now).items()}
        return {
            **new,
            "computed": {**new["computed"], **whole},
            "flight": {**new["flight"], (slot,): Flight.BUILDING},
            "preempted_in_pass": {(): True},
        }

    def _ranges(self, state: Sparse) -> list[Violation]:
        out = []
        for name in self.numbers:
            for args, value in state[name].items():
                if value < 0:
                    where = ", ".join(map(str, args))
                    out.append(Violation(f"{name}_stays_in_range", where, f"{name}[{where}] is {value}"))
        return out


def _still_together(old: Sparse, new: Sparse) -> Cells:
    """Who was ahead of whom, of those that are in one queue before and after (vLLM has two waiting queues)."""
    ahead = new["before"]
    return {(x, y): True for x, y in old["before"] if (x, y) in ahead or (y, x) in ahead}


def death_claim(driver: Subject, machine: Machine = SYSTEM) -> str:
    """Which claim falls when an exception leaves the scheduler: judged like any other, on the state of death."""
    driver.truth.dead = True
    names = frozenset({"alive", "breached", "mishap", "finish_hooks"})
    snapshot = driver.snapshot()
    state = bind(driver, snapshot, names)
    people, numbers = individuals(driver, snapshot), constants(driver)
    for name in (*SURVIVAL, SURVIVES):
        if compile_claim(machine, machine.claim(name))(state, state, people, numbers):
            return name
    return SURVIVES_EVENT


def _awaiting_their_last(driver: Subject, now: Snapshot) -> dict[str, int]:
    """Requests whose last token is in flight, with all their tokens: there is nothing more to compute for them.

    The specification bounds the tokens of all requests by one constant; here each has its own.
    """
    out = {}
    for r in now.requests:
        life = driver.truth.lives.get(r.rid)
        if life is not None and r.placeholders:
            most = min(life.request.num_prompt_tokens + life.answer, driver.scope.model_length)
            if r.known + r.placeholders >= most:
                out[r.rid] = r.known + r.placeholders
    return out
