"""Seams: what the adapters read and call, and whether a tree still has it.

Facts come from the correspondence tables, calls from the syntax trees of the adapters themselves (every call on something
named `scheduler`), supported classes from the short names of targets, connector hooks from the listener. A way such as
`kv_cache_manager.block_pool.blocks` is followed statically, from class to class through what the constructors assign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_lifecycle.adapters import omni, vllm
from vllm_lifecycle.adapters.drift.facts import Facts, assignments, methods, parameters, statuses
from vllm_lifecycle.adapters.drift.names import present
from vllm_lifecycle.adapters.drift.source import Class, Function, Module, Tree
from vllm_lifecycle.adapters.omni.seams import TABLE as OMNI_TABLE
from vllm_lifecycle.adapters.vllm.config import SHORT
from vllm_lifecycle.adapters.vllm.correspondence import TABLE, Row
from vllm_lifecycle.adapters.vllm.listen import HOOKS

REQUEST = "vllm.v1.request:Request"
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorBase_V1"
SUPPORTED = tuple(SHORT.values())
RECORDED = (*SUPPORTED, REQUEST, CONNECTOR)
"""Classes whose methods are recorded for the known releases."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a scheduler's method that the adapters make."""

    method: str
    positional: int
    keywords: tuple[str, ...]

    def __str__(self) -> str:
        shown = ["..."] * self.positional + [f"{k}=..." for k in self.keywords]
        return f"{self.method}({', '.join(shown)})"

    def misfit(self, params: tuple[str, ...]) -> str:
        """Why the call does not fit such parameters (as `facts.parameters` writes them); empty when it does."""
        star = next(
            (i for i, p in enumerate(params) if p.startswith("*") and not p.startswith("**")), len(params)
        )
        places = [p for p in params[:star] if not p.startswith("**")]
        more = star < len(params) and params[star] != "*"
        if self.positional > len(places) and not more:
            return f"it takes {len(places)} arguments, and is given {self.positional}"
        names = [p.rstrip("=") for p in params if not p.startswith("*")]
        foreign = [k for k in self.keywords if k not in names and not any(p.startswith("**") for p in params)]
        if foreign:
            return f"it has no parameter {', '.join(foreign)}"
        given = {p.rstrip("=") for p in places[: self.positional]} | {*self.keywords}
        missing = [p for p in params if not p.startswith("*") and not p.endswith("=") and p not in given]
        return f"it needs {', '.join(missing)}" if missing else ""


def rows_for(cls: str) -> tuple[Row, ...]:
    """The rows of the correspondence tables that a supported class must answer."""
    return (*TABLE, *OMNI_TABLE) if cls.startswith("vllm_omni") else TABLE


@cache
def calls() -> tuple[Call, ...]:
    """All calls on a scheduler in the adapters, each once."""
    found: dict[Call, None] = {}
    for package in (vllm, omni):
        for path in sorted(Path(str(package.__file__)).parent.glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Attribute(
                            value=ast.Attribute(attr="scheduler") | ast.Name(id="scheduler"), attr=name
                        ),
                        args=args,
                        keywords=keywords,
                    ):
                        words = tuple(k.arg for k in keywords if k.arg)
                        found[Call(name, len(args), words)] = None
    return tuple(found)


def hooks() -> tuple[str, ...]:
    """Methods of a connector that a scheduler calls."""
    return HOOKS


def holds(tree: Tree, cls: Class, way: str) -> bool | None:
    """Whether the way can be followed from an object of the class; None when that cannot be told from the source."""
    here: Class | None = cls
    for part in way.split("."):
        if here is None:
            return None
        name = part.removesuffix("()")
        found = attribute(here, name)
        if found is False:
            return False
        here = found if isinstance(found, Class) else None
    return True


def attribute(cls: Class, name: str) -> Class | bool | None:
    """What an attribute is: its class (of a method, its result's), True when only its name is known, False when there is none."""
    known = cls.method(name)
    if known is not None:
        owner, node = known
        return owner.module.resolve_class(node.returns) or True
    for owner in cls.lineage():
        found = _assigned(owner, name)
        if found is not False:
            return found
    return False


def _assigned(cls: Class, name: str) -> Class | bool:
    """What the class's own body or methods give an attribute."""
    here: Class | bool = False
    for row in cls.node.body:
        match row:
            case ast.AnnAssign(target=ast.Name(id=given), annotation=annotation) if given == name:
                here = cls.module.resolve_class(annotation) or True
            case ast.Assign(targets=targets) if any(
                isinstance(t, ast.Name) and t.id == name for t in targets
            ):
                here = True
    for method in cls.own_methods().values():
        for value, said in _writes(method, name):
            found = cls.module.resolve_class(said) or _class_of(cls, cls.module, value, method)
            if found is not None:
                return found
            here = True
    return here


def _writes(method: Function, name: str) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """(value, annotation) of each `self.name = ...` in a method."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and any(_is_self(t, name) for t in node.targets):
            yield node.value, None
        elif isinstance(node, ast.AnnAssign) and _is_self(node.target, name):
            yield node.value, node.annotation


def _is_self(target: ast.expr, name: str) -> bool:
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=found):
            return found == name
        case ast.Tuple(elts=elements):
            return any(_is_self(e, name) for e in elements)
    return False


def _class_of(cls: Class, module: Module, value: ast.expr | None, method: Function) -> Class | None:
    """The class of an expression in a method: a construction, a call with an annotated result, a parameter, a path from self."""
    match value:
        case ast.Call(func=ast.Name(id=name)):
            found = module.definition(name)
            if found is None:
                return None
            owner, node = found
            if isinstance(node, ast.ClassDef):
                return Class(owner, node)
            return owner.resolve_class(node.returns) if isinstance(node, Function) else None
        case ast.Name(id=name):
            for parameter in (*method.args.args, *method.args.kwonlyargs):
                if parameter.arg == name:
                    return module.resolve_class(parameter.annotation)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found_here = attribute(cls, name)
            return found_here if isinstance(found_here, Class) else None
        case ast.Attribute(value=inner, attr=name):
            owner_class = _class_of(cls, module, inner, method)
            if owner_class is not None:
                further = attribute(owner_class, name)
                return further if isinstance(further, Class) else None
    return None


def observed(tree: Tree, name: str) -> dict[str, str]:
    """Fact -> the first way by which a supported class offers it, as the adapters choose it; without those that it does not."""
    cls, request = tree.find(name), tree.find(REQUEST)
    found = {}
    for row in rows_for(name):
        start = cls if row.of == "scheduler" else request
        way = next((w for w in row.ways if start is not None and holds(tree, start, w)), None)
        if way is not None:
            found[row.fact] = way
    return found


def facts_of(tree: Tree) -> Facts:
    """The facts of a tree, with those of the recorded classes that it has."""
    found = {name: cls for name in RECORDED if (cls := tree.find(name)) is not None}
    return Facts(
        tree.version,
        statuses(tree),
        tuple(sorted(set(assignments(tree)))),
        {name: methods(cls) for name, cls in found.items()},
        {name: observed(tree, name) for name in SUPPORTED if name in found},
        present(tree),
    )


def signature(cls: Class, name: str) -> tuple[str, ...] | None:
    """The parameters of a method; None when the class has none of that name, or it is a property."""
    known = cls.method(name)
    if known is None or any(isinstance(d, ast.Name) and d.id == "property" for d in known[1].decorator_list):
        return None
    return parameters(known[1])
