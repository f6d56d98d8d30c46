"""Terms as readable text: `for all b, r: free[b] -> not table[r, b]`; a primed read is `status'[r]`.

One more meaning of the tree, for traces, counterexamples to induction, `explain` and docs. Rules. Text means what the
term means: a rewriting (`not (a = b)` to `a != b`, `not a or b` to `a -> b`, a disjunction of equations to `x in {A, B}`)
keeps the value. Parentheses follow precedence, never guesswork. A bound variable is shown by the name its author gave
it, with a number only where two would be confused. An update is shown at the places where it assigns; what it leaves
alone is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, assert_never

from vllm_lifecycle.spec.lang import terms as t
from vllm_lifecycle.spec.lang.machine import Action, Property, Witness
from vllm_lifecycle.spec.lang.sorts import BOOL, EnumSort, Sort, UninterpretedSort

_IF, _IMPLIES, _OR, _AND, _NOT, _COMPARE, _SUM, _ATOM = range(8)
_Names = Mapping[str, str]


def text(term: t.Term, names: _Names | None = None) -> str:
    """The term in words and signs; `names` says how to show free variables other than by their own names."""
    return _show(term, dict(names or {}))[0]


def value(item: Any, sort: Sort | None = None) -> str:
    """A concrete value: an enum member by name, a set in braces, a numbered individual as `r0` when its sort is given."""
    if isinstance(item, Enum):
        return item.name
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, frozenset | set):
        return "{" + ", ".join(sorted(value(i, sort) for i in item)) + "}"
    if isinstance(item, int) and isinstance(sort, UninterpretedSort):
        return f"{_initial(sort)}{item}"
    return str(item)


def cell(name: str, args: Iterable[Any], sorts: Iterable[Sort] = (), primed: bool = False) -> str:
    """A state variable at concrete arguments, as `table[r0, b1]`; `sorts` are those of the arguments."""
    given = tuple(args)
    known: tuple[Sort | None, ...] = tuple(sorts) or (None,) * len(given)
    inner = ", ".join(value(a, s) for a, s in zip(given, known, strict=True))
    return _place(name, inner, primed)


def claim(prop: Property) -> str:
    """A property as one sentence; `A ~> B` reads "whenever A holds, B holds then or later"."""
    arrow = "~>" if prop.kind == "progress" else "->"
    start = _for_all(p.name for p in prop.params)
    if prop.antecedent == t.TRUE:
        return f"{start}{text(prop.consequent)}"
    return f"{start}{_wrapped(prop.antecedent, {}, _OR)} {arrow} {_wrapped(prop.consequent, {}, _OR)}"


def witness(row: Witness) -> str:
    """A witness as one sentence."""
    names = [p.name for p in row.params]
    there = f"there is {', '.join(names)}: " if names else ""
    return f"some reachable {'step' if row.on_step else 'state'}: {there}{text(row.term)}"


def guards(action: Action) -> tuple[tuple[str, str], ...]:
    """The guards of an action as (why, condition)."""
    return tuple((g.label, text(g.term)) for g in action.guards)


def updates(action: Action) -> tuple[str, ...]:
    """What an action assigns, a line for each place."""
    taken = {p.name for p in action.params}
    return tuple(line for name, function in action.updates for line in assignments(name, function, taken))


def assignments(name: str, function: t.Function, taken: Iterable[str] = ()) -> list[str]:
    """The lines of one next-state function; `taken` are names that the generic arguments must not be shown by."""
    used = set(taken) | {v.name for v in t.free_vars(function.body) if v not in function.params}
    names: dict[str, str] = {}
    for param in function.params:
        names[param.name] = _fresh(_stem(param), used)
        used.add(names[param.name])
    return list(_branches(name, function.params, function.body, names))


def _branches(name: str, params: tuple[t.Var, ...], body: t.Term, names: dict[str, str]) -> Iterable[str]:
    """Peel the nested `if the argument is the place` that assignments make; the innermost old value is not shown."""
    other = ""
    while not _unchanged(body, name, params):
        cond, new, rest_of_body = _split(body, name, params)
        place = {}
        rest = []
        for part in t.conjuncts(cond):
            target = _pinned(part, params)
            if target is None or target[0] in place:
                rest.append(part)
            else:
                place[target[0]] = target[1]
        shown = [text(place.get(p, p), names) for p in params]
        left = [names[p.name] for p in params if p not in place]
        line = f"{other}{_place(name, ', '.join(shown), True)} = {_wrapped(t.substitute(new, place), names, _SUM)}"
        if rest:
            line += f" where {text(t.substitute(t.conj(*rest), place), names)}"
        elif left and isinstance(new, t.Lit):
            line += f" for all {', '.join(left)}"
        yield line
        if rest_of_body is None:
            return
        body, other = rest_of_body, "else "


def _unchanged(term: t.Term, name: str, params: tuple[t.Var, ...]) -> bool:
    return isinstance(term, t.Read) and (term.var, term.args, term.primed) == (name, params, False)


def _split(body: t.Term, name: str, params: tuple[t.Var, ...]) -> tuple[t.Term, t.Term, t.Term | None]:
    """Condition, value there, value elsewhere; booleans were folded to connectives and are unfolded here."""
    match body:
        case t.Ite(cond, then, other):
            return cond, then, other
        case t.And(args) | t.Or(args) if old := [a for a in args if _unchanged(a, name, params)]:
            others = [a for a in args if a not in old]
            if isinstance(body, t.And):
                return t.neg(t.conj(*others)), t.FALSE, old[0]
            return t.disj(*others), t.TRUE, old[0]
        case _:
            return t.TRUE, body, None


def _pinned(part: t.Term, params: tuple[t.Var, ...]) -> tuple[t.Var, t.Term] | None:
    """`(argument, place)` when the condition says that an argument of the function is a given place."""
    match part:
        case t.Eq(a, b):
            for one, two in ((a, b), (b, a)):
                if isinstance(one, t.Var) and one in params and not t.free_vars(two) & frozenset(params):
                    return one, two
    return None


def _show(term: t.Term, names: dict[str, str]) -> tuple[str, int]:
    """Text and precedence of its outermost sign."""
    match term:
        case t.Lit(item):
            return value(item), _ATOM
        case t.Var(name):
            return names.get(name, name), _ATOM
        case t.Const(name):
            return name, _ATOM
        case t.Read(var, args, _, primed):
            return _place(var, ", ".join(_show(a, names)[0] for a in args), primed), _ATOM
        case t.InSet(set_name, element):
            return f"{_wrapped(element, names, _SUM)} in {set_name}", _COMPARE
        case t.Not(arg):
            return _negated(arg, names)
        case t.And(args):
            return _alternatives(args, names, negated=True) or _joined(args, " and ", _AND, names)
        case t.Or(args):
            return _alternatives(args, names, negated=False) or _disjunction(args, names)
        case t.Eq(left, right):
            sign = "<->" if t.sort_of(left) == BOOL else "="
            level = _IMPLIES if sign == "<->" else _COMPARE
            return f"{_wrapped(left, names, level + 1)} {sign} {_wrapped(right, names, level + 1)}", level
        case t.Le(left, right):
            return _compared(left, right, "<=", ">=", names)
        case t.Add(left, right):
            return f"{_wrapped(left, names, _SUM)} + {_wrapped(right, names, _ATOM)}", _SUM
        case t.Sub(left, right):
            return f"{_wrapped(left, names, _SUM)} - {_wrapped(right, names, _ATOM)}", _SUM
        case t.Ite(cond, then, other):
            parts = [_wrapped(p, names, _IMPLIES) for p in (cond, then, other)]
            return "if {} then {} else {}".format(*parts), _IF
        case t.ForAll() | t.Exists():
            return _quantified(term, names), _IF
        case _:
            assert_never(term)


def _wrapped(term: t.Term, names: dict[str, str], least: int) -> str:
    """The text, in parentheses when its sign binds less tightly than `least`."""
    shown, level = _show(term, names)
    return shown if level >= least else f"({shown})"


def _negated(arg: t.Term, names: dict[str, str]) -> tuple[str, int]:
    match arg:
        case t.Eq(left, right) if t.sort_of(left) != BOOL:
            return f"{_wrapped(left, names, _SUM)} != {_wrapped(right, names, _SUM)}", _COMPARE
        case t.Le(left, right):
            return _compared(left, right, ">", "<", names)
        case t.InSet(set_name, element):
            return f"{_wrapped(element, names, _SUM)} not in {set_name}", _COMPARE
        case t.Or(args) if found := _alternatives(args, names, negated=False, inverted=True):
            return found
        case _:
            return f"not {_wrapped(arg, names, _COMPARE)}", _NOT


def _compared(left: t.Term, right: t.Term, sign: str, turned: str, names: dict[str, str]) -> tuple[str, int]:
    """A comparison with its literal, if any, on the right."""
    if isinstance(left, t.Lit):
        left, right, sign = right, left, turned
    return f"{_wrapped(left, names, _SUM)} {sign} {_wrapped(right, names, _SUM)}", _COMPARE


def _joined(args: Iterable[t.Term], word: str, level: int, names: dict[str, str]) -> tuple[str, int]:
    return word.join(_wrapped(a, names, level + 1) for a in args), level


def _disjunction(args: tuple[t.Term, ...], names: dict[str, str]) -> tuple[str, int]:
    """`a and b -> c or d` when negated parts come first, else a plain disjunction."""
    left = []
    for arg in args:
        if not isinstance(arg, t.Not):
            break
        left.append(arg.arg)
    left = left[: len(args) - 1]
    right = args[len(left) :]
    if not left:
        return _joined(args, " or ", _OR, names)
    return f"{_wrapped(t.conj(*left), names, _OR)} -> {_wrapped(t.disj(*right), names, _OR)}", _IMPLIES


def _alternatives(
    args: tuple[t.Term, ...], names: dict[str, str], *, negated: bool, inverted: bool = False
) -> tuple[str, int] | None:
    """`x in {A, B}` when every part is `x = member` (or, `negated`, `x != member`) for one x; else None."""
    subject: t.Term | None = None
    members: list[str] = []
    for arg in args:
        if negated:
            if not isinstance(arg, t.Not):
                return None
            arg = arg.arg
        match arg:
            case t.Eq(left, t.Lit(Enum() as member)) if subject in (None, left):
                subject = left
                members.append(member.name)
            case _:
                return None
    if subject is None:
        return None
    word = "not in" if negated or inverted else "in"
    return f"{_wrapped(subject, names, _SUM)} {word} {{{', '.join(members)}}}", _COMPARE


def _quantified(term: t.ForAll | t.Exists, names: dict[str, str]) -> str:
    taken = {names.get(v.name, v.name) for v in t.free_vars(term)} | set(names.values())
    taken |= {n.set_name for n in t.walk(term) if isinstance(n, t.InSet)}
    inner = dict(names)
    shown = []
    for var in term.vars:
        inner[var.name] = _fresh(_stem(var), taken)
        taken.add(inner[var.name])
        shown.append(inner[var.name])
    word = "for all" if isinstance(term, t.ForAll) else "there is"
    return f"{word} {', '.join(shown)}: {_show(term.body, inner)[0]}"


def _for_all(names: Iterable[str]) -> str:
    given = ", ".join(names)
    return f"for all {given}: " if given else ""


def _place(name: str, inner: str, primed: bool) -> str:
    mark = "'" if primed else ""
    return f"{name}{mark}[{inner}]" if inner else f"{name}{mark}"


def _stem(var: t.Var) -> str:
    """The author's name of a variable (`b` of `b.1`); a generic argument is called after its sort."""
    return _initial(var.sort) if var.name.startswith("@") else var.name.partition(".")[0]


def _initial(sort: Sort) -> str:
    return str(sort)[0].lower() if isinstance(sort, UninterpretedSort | EnumSort) else "n"


def _fresh(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}{number}"
    return name
