"""Reading what a solver prints: S-expressions, and values of the sorts of the specification."""

from __future__ import annotations

from typing import Any

from vllm_lifecycle.spec.lang.sorts import BoolSort, EnumSort, IntSort, Sort

SExpr = str | list[Any]


def parse(output: str) -> list[SExpr]:
    """All S-expressions of a text; ValueError when the brackets do not match."""
    tokens = output.replace("(", " ( ").replace(")", " ) ").split()
    stack: list[list[SExpr]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError(f"unmatched bracket in {output!r}")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise ValueError(f"unmatched bracket in {output!r}")
    return stack[0]


def value(expression: SExpr, sort: Sort) -> Any:
    """The Python value of a printed one, of a boolean, enum or integer sort; ValueError for anything else."""
    match sort, expression:
        case BoolSort(), "true" | "false":
            return expression == "true"
        case IntSort(), ["-", str(digits)]:
            return -int(digits)
        case IntSort(), str(digits):
            return int(digits)
        case EnumSort(cls), str(name):
            return cls[name.removeprefix(f"{cls.__name__}.")]
        case _:
            raise ValueError(f"{expression!r} is no value of sort {sort}")
