"""The notebook in which a specification is written: decorators that turn functions into rows, and reject bad ones.

    spec = Spec("example")
    spec.var("status", Request, to=Status, init=Status.FREED, module="queue")

    @spec.action(by="client", feature="core")
    def add_request(s: State, r: Request) -> None:
        s.require(s.status[r] == Status.FREED)
        s.status[r] = Status.WAITING

    @spec.safety()
    def a_free_block_has_no_table(s: State, b: Block, r: Request) -> Implication: ...

A definition is checked when it is made; `spec.seal()` checks what only the whole can show (see `wellformed`) and answers
the frozen `Machine`. Mutants are variants of a machine, made by `Machine`-to-`Machine` functions in `mutants/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.build import Expr, SetOf, State, lift, sort_of_annotation, truth, variable
from vllm_lifecycle.spec.lang.claims import Implication
from vllm_lifecycle.spec.lang.machine import (
    Action,
    Count,
    Fairness,
    Guard,
    Lifecycle,
    Machine,
    Param,
    Property,
    PropertyKind,
    StateVar,
    Witness,
)
from vllm_lifecycle.spec.lang.places import check_places
from vllm_lifecycle.spec.lang.sorts import BOOL, BoolSort, DefinitionError, IntSort, Sort
from vllm_lifecycle.spec.lang.wellformed import (
    check_machine,
    check_parameters,
    check_property,
    check_successors,
    check_updates,
    check_variable,
)

Definition = Callable[..., Any]


class Spec:
    """A specification under construction; `seal()` answers the finished machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._vars: dict[str, StateVar] = {}
        self._consts: dict[str, t.Const] = {}
        self._actions: dict[str, Action] = {}
        self._functions: dict[str, Definition] = {}
        self._properties: dict[str, Property] = {}
        self._witnesses: dict[str, Witness] = {}
        self._counts: list[Count] = []
        self._lifecycles: list[Lifecycle] = []

    # the vocabulary

    def signature(self, name: str) -> tuple[tuple[Sort, ...], Sort]:
        """Argument sorts and value sort of a state variable (the `Schema` of symbolic states)."""
        if name not in self._vars:
            raise DefinitionError(
                f"unknown state variable {name}: declare it with spec.var, or use one of {', '.join(self._vars)}"
            )
        var = self._vars[name]
        return var.args, var.sort

    def const(self, name: str, low: int = 1) -> Expr:
        """A rigid integer constant of at least `low`, given a value by a scope and symbolic in proofs."""
        if name in self._consts or name in self._vars:
            raise DefinitionError(f"{name} is declared twice: use the first declaration or another name")
        self._consts[name] = t.Const(name, IntSort(low, name))
        return Expr(self._consts[name])

    def var(
        self,
        name: str,
        *args: Any,
        to: Any = bool,
        init: bool | int | Enum = False,
        module: str,
        ghost: bool = False,
        doc: str = "",
    ) -> None:
        """Declare a state variable with argument sorts `args`, value sort `to` and one initial value for all places."""
        if name in self._vars or name in self._consts:
            raise DefinitionError(f"{name} is declared twice: use the first declaration or another name")
        if name.startswith("_") or name in State._fields or hasattr(State, name):
            raise DefinitionError(f"{name} cannot name a state variable: it is a word of the language")
        sort = to if isinstance(to, IntSort) else sort_of_annotation(to)
        start = lift(init)
        check_variable(name, sort, start, self._consts)
        assert isinstance(start, t.Lit)
        self._vars[name] = StateVar(
            name,
            tuple(sort_of_annotation(a) for a in args),
            sort,
            t.Lit(start.value, sort),
            module,
            ghost,
            doc,
        )

    # actions

    def action(
        self,
        *,
        by: str,
        feature: str = "core",
        fair: bool | Fairness = False,
        source: Mapping[str, str] | None = None,
    ) -> Callable[[Definition], Definition]:
        """Define an action; the function is returned unchanged so that mutants can build on it."""

        def decorate(function: Definition) -> Definition:
            fairness = fair if isinstance(fair, Fairness) else (Fairness.WEAK if fair else Fairness.NONE)
            row = self.build_action(function, by=by, feature=feature, fairness=fairness, source=source or {})
            if row.name in self._actions:
                raise DefinitionError(f"action {row.name} is defined twice: give one of them another name")
            self._actions[row.name] = row
            self._functions[row.name] = function
            return function

        return decorate

    def build_action(
        self, function: Definition, *, by: str, feature: str, fairness: Fairness, source: Mapping[str, str]
    ) -> Action:
        """The row of an action function, checked; nothing is registered."""
        name = function.__name__
        state = State(self, writable=True)
        params, arguments = _parameters(function)
        with _located(name):
            if function(state, *arguments) is not None:
                raise DefinitionError("an action returns nothing: assign to the state instead")
            if not state._writes and not state._guards:
                raise DefinitionError("an action needs a guard or an assignment")
            row = Action(
                name,
                params,
                tuple(Guard(label, term) for label, term in state._guards),
                tuple(state._values.items()),
                fairness,
                by,
                feature,
                tuple(source.items()),
                _doc(function),
            )
            check_parameters(
                row.params, self._consts, (*(g.term for g in row.guards), *(f.body for _, f in row.updates))
            )
            check_updates(row, self._vars)
        return row

    def vary(self, name: str, change: Definition, drop: Iterable[str] = ()) -> Action:
        """A faulty variant of an action, for mutants: the guards labelled in `drop` are missing, and `change` runs last.

        `change` has the action's own parameters; it may assign again what the action assigned, and add guards, which
        then read `s.old`.
        """
        with _located(change.__name__):
            if name not in self._functions:
                raise DefinitionError(f"unknown action {name}: a mutant changes an action that exists")
            original = self._actions[name]
            missing = set(drop) - {g.label for g in original.guards}
            if missing:
                labels = ", ".join(repr(g.label) for g in original.guards if g.label)
                raise DefinitionError(f"{name} has no guard labelled {min(missing)!r}: choose from {labels}")
            _, arguments = _parameters(self._functions[name])
            state = State(self, writable=True)
            self._functions[name](state, *arguments)
            kept = [g for g in state._guards if g[0] not in set(drop)]
            state._guards[:] = kept
            state._override(lambda: change(state, *arguments))
            guards = tuple(Guard(label, term) for label, term in state._guards)
            row = replace(original, guards=guards, updates=tuple(state._values.items()))
            check_updates(row, self._vars)
        return row

    # properties

    def safety(self, *, ids: Iterable[str] = (), lemma: bool = False) -> Callable[[Definition], Definition]:
        """Define a state property: `return when(antecedent).then(consequent)`."""
        return self._property("state", ids, lemma)

    def step(self, *, ids: Iterable[str] = ()) -> Callable[[Definition], Definition]:
        """Define a property of every step: `s.old` reads the state before it, `s` the state after it."""
        return self._property("step", ids, False)

    def progress(self, *, ids: Iterable[str] = ()) -> Callable[[Definition], Definition]:
        """Define a progress property: whenever the antecedent holds, the consequent holds then or later."""
        return self._property("progress", ids, False)

    def _property(
        self, kind: PropertyKind, ids: Iterable[str], lemma: bool
    ) -> Callable[[Definition], Definition]:
        def decorate(function: Definition) -> Definition:
            name = function.__name__
            params, arguments = _parameters(function)
            with _located(name):
                if name in self._properties:
                    raise DefinitionError("this property is defined twice: give one of them another name")
                claim = function(State(self, primed=kind == "step"), *arguments)
                if not isinstance(claim, Implication):
                    raise DefinitionError(
                        "a property without a witness could hold for want of cases: return when(interesting case).then(claim)"
                    )
                row = Property(
                    name,
                    kind,
                    params,
                    claim.antecedent.term,
                    claim.consequent.term,
                    tuple(ids),
                    lemma,
                    _doc(function),
                )
                check_property(row)
                check_parameters(row.params, self._consts, (row.antecedent, row.consequent), sets=False)
                self._properties[name] = row
                if row.antecedent != t.TRUE:
                    self._add_witness(
                        Witness(f"can_reach_the_case_of_{name}", params, row.antecedent, name, _doc(function))
                    )
            return function

        return decorate

    def witness(self, function: Definition) -> Definition:
        """Define a condition that some reachable state (or step, with `s.old`) must satisfy."""
        name = function.__name__
        params, arguments = _parameters(function)
        with _located(name):
            if not name.startswith("can_"):
                raise DefinitionError("a witness says what can happen: name it can_...")
            annotated = inspect.signature(function).return_annotation
            condition = function(State(self, primed="step" in str(annotated)), *arguments)
            term = truth(condition)
            check_parameters(params, self._consts, (term,), sets=False)
            if term == t.FALSE:
                raise DefinitionError("the condition is never true on its face: say what can happen")
            self._add_witness(Witness(name, params, term, None, _doc(function)))
        return function

    def _add_witness(self, witness: Witness) -> None:
        if witness.name in self._witnesses:
            raise DefinitionError(f"witness {witness.name} is defined twice: give one of them another name")
        self._witnesses[witness.name] = witness

    # counts and lifecycles

    def count(self, counter: str, *, over: Any) -> Callable[[Definition], Definition]:
        """Claim `counter[args] = number of x in `over` with member(s, *args, x)`; the function is `member`."""

        def decorate(function: Definition) -> Definition:
            params, arguments = _parameters(function)
            with _located(function.__name__):
                args, sort = self.signature(counter)
                if not isinstance(sort, IntSort):
                    raise DefinitionError(f"{counter} holds {sort}: a count needs a counter with a number")
                if tuple(p.sort for p in params) != (*args, sort_of_annotation(over)):
                    raise DefinitionError(
                        f"the parameters must be those of {counter}, then the one counted over"
                    )
                member = lift(function(State(self), *arguments))
                if not isinstance(t.sort_of(member), IntSort | BoolSort):
                    raise DefinitionError(
                        "the function must say whether, or how often, the individual counts"
                    )
            self._counts.append(Count(counter, params[:-1], params[-1], member, _doc(function)))
            return function

        return decorate

    def lifecycle(
        self,
        name: str,
        var: str,
        successors: Mapping[Any, Iterable[Any]],
        *,
        index: tuple[object, ...] = (),
        doc: str = "",
    ) -> None:
        """Write down the states of one object and what each may become, independently of the actions.

        `index` fixes leading or inner arguments of the variable by literal (None leaves one open), as in
        `(None, Kind.SEND)` for one kind of transfer.
        """
        with _located(name):
            args, sort = self.signature(var)
            places = index or tuple(None for _ in args)
            cls = getattr(sort, "cls", None)
            if cls is None:
                raise DefinitionError(f"{var} holds {sort}: a lifecycle needs a variable with enum states")
            if len(places) != len(args):
                raise DefinitionError(f"{var} takes {len(args)} argument(s): give an index of that length")
            rows = tuple((state, frozenset(following)) for state, following in successors.items())
            lits = tuple(None if p is None else _literal(p) for p in places)
            check_places(var, args, lits)
            if name in {lc.name for lc in self._lifecycles}:
                raise DefinitionError("this lifecycle is defined twice: give one of them another name")
            check_successors(dict(rows), cls)
            self._lifecycles.append(Lifecycle(name, var, lits, rows, doc))

    def seal(self) -> Machine:
        """Check the whole and answer it as a frozen machine."""
        machine = Machine(
            self.name,
            tuple(self._vars.values()),
            tuple(self._consts.values()),
            tuple(self._actions.values()),
            tuple(self._properties.values()),
            tuple(self._witnesses.values()),
            tuple(self._counts),
            tuple(self._lifecycles),
        )
        check_machine(machine)
        return machine


class _located:  # noqa: N801 - used as a statement
    """Prefix a DefinitionError with the name of the definition it is about."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, DefinitionError):
            raise DefinitionError(f"{self.name}: {error}") from None


def _literal(value: object) -> t.Lit:
    term = lift(value)
    if not isinstance(term, t.Lit):
        raise DefinitionError(f"{value!r} is not a literal")
    return term


def _doc(function: Definition) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def _parameters(function: Definition) -> tuple[tuple[Param, ...], list[object]]:
    """Parameters and the arguments that stand for them, from the annotations after the first parameter (the state)."""
    hints = inspect.get_annotations(function, eval_str=True)
    params: list[Param] = []
    arguments: list[object] = []
    with _located(function.__name__):
        names = list(inspect.signature(function).parameters)[1:]
        for name in names:
            if name not in hints:
                raise DefinitionError(
                    f"parameter {name} needs a sort: write `{name}: Request` or `{name}: SetOf[Block]`"
                )
            hint: Any = hints[name]
            origin: Any = get_origin(hint)
            if origin is SetOf:
                sort = sort_of_annotation(get_args(hint)[0])
                params.append(Param(name, sort, is_set=True))
                arguments.append(SetOf(name, sort))
            elif origin is Annotated:
                sort = get_args(hint)[1]
                if not isinstance(sort, IntSort):
                    raise DefinitionError(f"parameter {name}: write Annotated[int, IntSort(low, high)]")
                params.append(Param(name, sort))
                arguments.append(Expr(t.Var(name, sort)))
            else:
                argument = variable(name, hint)
                params.append(Param(name, t.sort_of(argument.term)))
                arguments.append(argument)
    return tuple(params), arguments


__all__ = ["BOOL", "Fairness", "Spec"]
