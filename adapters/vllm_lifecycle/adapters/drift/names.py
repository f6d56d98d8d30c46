"""Names that the adapters import from vLLM, read off their own syntax trees, and whether a tree has them.

An adapter asks for a name by `from vllm... import NAME` or by `importlib.import_module("vllm...").NAME`, also by way of a
variable in the same function. A name that every known release has is needed; one that only some have is feature detection.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vllm_lifecycle.adapters import omni, vllm
from vllm_lifecycle.adapters.drift.source import PACKAGES, Function, Module, Tree, parse


@cache
def imported() -> tuple[str, ...]:
    """All names as `module:NAME`, in order."""
    found: set[str] = set()
    for package in (vllm, omni):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            code = parse(path)
            found |= set(_from_imports(code))
            for node in ast.walk(code):
                if isinstance(node, Function):
                    found |= set(_by_importlib(node))
    return tuple(sorted(n for n in found if n.partition(":")[0].partition(".")[0] in PACKAGES))


def _from_imports(code: ast.Module) -> Iterator[str]:
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}:{alias.name}" for alias in node.names)


def _by_importlib(function: Function) -> Iterator[str]:
    modules: dict[str, str] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if module := _module(value):
                modules[name] = module
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in modules:
                yield f"{modules[name]}:{attr}"
            case ast.Attribute(value=ast.Call() as call, attr=attr) if module := _module(call):
                yield f"{module}:{attr}"


def _module(value: ast.expr) -> str:
    """The module of `importlib.import_module("...")`; empty for anything else."""
    match value:
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
            return module
    return ""


def present(tree: Tree) -> tuple[str, ...]:
    """Those of the imported names that a tree has."""
    found = []
    for name in imported():
        module, _, attribute = name.partition(":")
        there = tree.module(module)
        if (there is not None and _has(there, attribute)) or tree.module(f"{module}.{attribute}") is not None:
            found.append(name)
    return tuple(found)


def _has(module: Module, name: str) -> bool:
    """Whether a module binds a name at top level; one that makes names at run time is believed to."""
    for node in _top_level(module.code.body):
        match node:
            case ast.ClassDef(name=bound) | ast.FunctionDef(name=bound) | ast.AsyncFunctionDef(name=bound):
                if bound in (name, "__getattr__"):
                    return True
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                if any((a.asname or a.name.partition(".")[0]) in (name, "*") for a in aliases):
                    return True
            case ast.Assign() | ast.AnnAssign() if _binds(node, name):
                return True
    return False


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _top_level([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)])
            yield from (n for h in getattr(node, "handlers", []) for n in _top_level(h.body))


def _binds(node: ast.stmt, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(node)
    )
