"""Four small specifications for the proof engine: custody with reference counts, a ticket queue, a relay, a pipeline."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from vllm_lifecycle.spec.lang.build import Expr, Individual, SetOf, State, exists, forall, one_if
from vllm_lifecycle.spec.lang.claims import Implication, always, when
from vllm_lifecycle.spec.lang.define import Spec
from vllm_lifecycle.spec.lang.sorts import IntSort


class User(Individual):
    """Who holds pages."""


class Page(Individual):
    """What is held."""


class Job(Individual):
    """What is worked on."""


class Stage(Enum):
    """How far a job is."""

    IDLE = "IDLE"
    READY = "READY"
    DONE = "DONE"


class Wire(Enum):
    """The lines of a relay."""

    LEFT = "LEFT"
    RIGHT = "RIGHT"


def custody(*, frees_shared: bool = False, forgets_to_count: bool = False, extra: bool = False) -> Spec:
    """Pages in tables, with a reference count and a number of users at work."""
    spec = Spec("custody")
    spec.const("many")
    spec.const("seats")
    spec.var("table", User, Page, module="m")
    spec.var("free", Page, init=True, module="m")
    spec.var("refs", Page, to=IntSort(0, "many"), init=0, module="m")
    spec.var("busy", User, module="m")
    spec.var("working", to=IntSort(0, "seats"), init=0, module="m")
    seats = spec._consts["seats"]

    @spec.action(by="user")
    def take(s: State, u: User, pages: SetOf[Page]) -> None:
        """A user comes and takes some pages."""
        s.require(~s.busy[u])
        s.require(s.working < Expr(seats))
        s.busy[u] = True
        s.working = s.working + 1
        s.refs[:] = lambda p: s.refs[p] + one_if(pages[p] & ~s.table[u, p])
        s.table[u, :] = lambda p: pages[p] | s.table[u, p]
        s.free[:] = lambda p: s.free[p] & ~pages[p]

    @spec.action(by="user")
    def leave(s: State, u: User) -> None:
        """A user gives all back."""
        s.require(s.busy[u])
        s.busy[u] = False
        if not forgets_to_count:
            s.working = s.working - 1
        s.refs[:] = lambda p: s.refs[p] - one_if(s.table[u, p])
        s.free[:] = lambda p: s.free[p] | (s.table[u, p] & (True if frees_shared else s.refs[p] == 0))
        s.table[u, :] = False

    @spec.action(by="user")
    def close(s: State) -> None:
        """Everybody leaves."""
        s.busy[:] = False
        s.working = 0
        s.table[:, :] = False
        s.refs[:] = 0
        s.free[:] = True

    @spec.safety()
    def a_free_page_is_in_no_table(s: State, p: Page, u: User) -> Implication:
        """Free pages have no holder."""
        return when(s.free[p]).then(~s.table[u, p])

    @spec.safety()
    def only_busy_users_hold_pages(s: State, p: Page, u: User) -> Implication:
        """An idle user holds nothing."""
        return when(s.table[u, p]).then(s.busy[u])

    @spec.safety()
    def a_held_page_is_counted(s: State, p: Page, u: User) -> Implication:
        """Follows from the count alone."""
        return when(s.table[u, p]).then(s.refs[p] >= 1)

    @spec.safety()
    def nobody_works_when_none_is_counted(s: State, u: User) -> Implication:
        """Follows from the count alone."""
        return when(s.working == 0).then(~s.busy[u])

    @spec.step()
    def a_page_is_freed_only_by_its_last_holder(s: State, p: Page) -> Implication:
        """A page that becomes free had at most one holder, or everybody left."""
        return when(s.free[p], ~s.old.free[p]).then((s.old.refs[p] <= 1) | (s.working == 0))

    @spec.count("refs", over=User)
    def tables(s: State, p: Page, u: User) -> Expr:
        """The count of a page is the number of tables."""
        return s.table[u, p]  # type: ignore[no-any-return]

    @spec.count("working", over=User)
    def at_work(s: State, u: User) -> Expr:
        """Users at work."""
        return s.busy[u]  # type: ignore[no-any-return]

    if extra:

        @spec.safety()
        def no_two_users_share(s: State, p: Page, u: User, v: User) -> Implication:
            """Not so: pages are shared."""
            return when(s.table[u, p], s.table[v, p]).then(u == v)

    return spec


def tickets(*, guarded: bool = True, step: int = 1) -> Spec:
    """A counter between 0 and a constant, a ghost that remembers half of it, and integer parameters."""
    spec = Spec("tickets")
    top = spec.const("top")
    spec.var("next", to=IntSort(0, "top"), init=0, module="m")
    spec.var("served", to=IntSort(0, "top"), init=0, module="m")
    spec.var("number", Job, to=IntSort(0, "top"), init=0, module="m")

    @spec.action(by="job")
    def draw(s: State, j: Job) -> None:
        """A job draws the next number."""
        s.require(s.number[j] == 0)
        if guarded:
            s.require(s.next < top)
        s.number[j] = s.next + 1
        s.next = s.next + 1

    @spec.action(by="job")
    def serve(s: State, j: Job, by: Annotated[int, IntSort(1, 2)]) -> None:
        """The next job in order is served."""
        s.require(by == 1)
        s.require(s.number[j] == s.served + by)
        s.served = s.served + step

    @spec.safety()
    def served_are_drawn(s: State, j: Job) -> Implication:
        """No number is drawn beyond the next."""
        return when(s.number[j] >= 1).then(s.number[j] <= s.next)

    @spec.safety()
    def numbers_differ(s: State, j: Job, k: Job) -> Implication:
        """No two jobs have the same number."""
        return when(s.number[j] >= 1, s.number[j] == s.number[k]).then(j == k)

    @spec.safety()
    def nobody_is_served_before_drawing(s: State) -> Implication:
        """The queue does not run ahead."""
        return always(s.served <= s.next)

    return spec


def relay() -> Spec:
    """Two wires that are swapped and moved at once: primed and unprimed reads must not be mixed up."""
    spec = Spec("relay")
    spec.var("left", module="m")
    spec.var("right", init=True, module="m")
    spec.var("level", Wire, to=IntSort(0, 1), init=0, module="m")
    spec.var("total", to=IntSort(0, 2), init=0, module="m")

    @spec.action(by="relay", fair=True)
    def swap(s: State) -> None:
        """Both change at once."""
        s.left = s.old.right
        s.right = s.old.left

    @spec.action(by="relay")
    def raise_level(s: State, w: Wire) -> None:
        """One wire goes up."""
        s.require(s.level[w] == 0)
        s.level[w] = 1
        s.total = s.total + 1

    @spec.safety()
    def exactly_one_is_on(s: State) -> Implication:
        """Swapping keeps that."""
        return always(s.left != s.right)

    @spec.step()
    def swapping_moves_the_level(s: State) -> Implication:
        """What was left is right, or nothing moved."""
        return when(s.old.left).then(s.right | s.left)

    @spec.count("total", over=Wire)
    def levels(s: State, w: Wire) -> Expr:
        """A count over an enum is a sum."""
        return s.level[w] == 1  # type: ignore[no-any-return]

    return spec


def pipeline(*, fair: bool = True) -> Spec:
    """Jobs become ready and are done, one at a time, by a worker that may be taken away: for progress."""
    spec = Spec("pipeline")
    spec.var("stage", Job, to=Stage, init=Stage.IDLE, module="m")
    spec.var("open", init=True, module="m")
    spec.var("waiting", Job, module="m")

    @spec.action(by="client")
    def submit(s: State, j: Job) -> None:
        """A job becomes ready, while the shop is open."""
        s.require(s.open)
        s.require(s.stage[j] == Stage.IDLE)
        s.stage[j] = Stage.READY
        s.waiting[j] = True

    @spec.action(by="worker", fair=fair)
    def start(s: State, j: Job) -> None:
        """A job no longer waits."""
        s.require(s.waiting[j])
        s.waiting[j] = False

    @spec.action(by="worker", fair=fair)
    def finish(s: State, j: Job) -> None:
        """A started job is done."""
        s.require(s.stage[j] == Stage.READY)
        s.require(~s.waiting[j])
        s.stage[j] = Stage.DONE

    @spec.action(by="client")
    def disturb(s: State, j: Job) -> None:
        """A started job waits again: only while the shop is open."""
        s.require(s.open & (s.stage[j] == Stage.READY))
        s.waiting[j] = True

    @spec.action(by="owner", fair=True)
    def shut(s: State) -> None:
        """The shop closes for good."""
        s.require(s.open)
        s.open = False

    @spec.safety()
    def only_ready_jobs_wait(s: State, j: Job) -> Implication:
        """Who waits is ready."""
        return when(s.waiting[j]).then(s.stage[j] == Stage.READY)

    @spec.progress()
    def a_ready_job_is_done(s: State, j: Job) -> Implication:
        """Every ready job gets done."""
        return when(s.stage[j] == Stage.READY).then(s.stage[j] == Stage.DONE)

    @spec.progress()
    def all_ready_jobs_are_done_in_a_closed_shop(s: State) -> Implication:
        """Needs a set as rank: any number of jobs."""
        return when(~s.open).then(
            ~exists(Job, lambda j: s.waiting[j]), forall(Job, lambda j: s.stage[j] != Stage.READY)
        )

    return spec


__all__ = ["Job", "Page", "Stage", "User", "Wire", "custody", "pipeline", "relay", "tickets"]
