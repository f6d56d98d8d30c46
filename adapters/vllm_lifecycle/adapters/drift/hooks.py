"""A user's subclass against a tree: which of the hooks that it overrides changed, went away, or no longer fit.

The class is parsed, never imported; its bases are looked up in the tree. An override breaks when nothing calls it any more, when
it cannot take what its base takes, or when the results of the base have another shape than its own; a class breaks when it lacks
an abstract method. A base whose body changed is a note: read it again.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from vllm_lifecycle.adapters.drift import facts, seams
from vllm_lifecycle.adapters.drift.facts import PASSED_ON, Facts, Method
from vllm_lifecycle.adapters.drift.finding import Finding
from vllm_lifecycle.adapters.drift.source import Class, Function, Module, NoTree, Tree, parse


def load(tree: Tree, name: str) -> Class:
    """The class of `pkg.mod:Class` or `path/to/file.py:Class`, its imports looked up in the tree; NoTree when there is none."""
    place, colon, cls = name.rpartition(":")
    if not colon or not place:
        raise NoTree(f"{name!r} names no class: write pkg.mod:Class or path/to/file.py:Class")
    file = _file(place)
    module = Module(tree, place, file, parse(file))
    found = module.definition(cls)
    if found is None or not isinstance(found[1], ast.ClassDef):
        raise NoTree(f"{file} defines no class {cls}: name one that it defines")
    return Class(found[0], found[1])


def _file(place: str) -> Path:
    """The file of a module, found without importing anything."""
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise NoTree(f"there is no file {place}: name the file that defines your class")
        return Path(place)
    for folder in ("", *sys.path):
        base = Path(folder or ".").joinpath(*place.split("."))
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file
    raise NoTree(f"no module {place} here or on the path of Python: name its file as path/to/file.py:Class")


def overrides(tree: Tree, cls: Class, against: Facts) -> Iterator[Finding]:
    """The findings on a user's class; `against` is the release that it was written for."""
    bases = [b for b in cls.lineage()[1:] if b.module.name.partition(".")[0] in ("vllm", "vllm_omni")]
    if not bases:
        raise NoTree(
            f"{cls.node.name} has no base class of {tree.root / 'vllm'}: name a subclass of a vLLM class"
        )
    mine = [c for c in cls.lineage() if c not in bases and c.name not in {b.name for b in bases}]
    own = {name: node for c in reversed(mine) for name, node in c.own_methods().items()}
    now = facts.methods(bases[0])
    then = next((against.classes[b.name] for b in bases if b.name in against.classes), {})
    for name, node in own.items():
        yield from _override(f"{cls.node.name}.{name}", facts.method(node), then.get(name), now.get(name))
    yield from _missing(cls, bases)
    yield from _super_calls(cls, own, now)
    yield from _reads(cls, own, bases)


def _override(what: str, own: Method, then: Method | None, now: Method | None) -> Iterator[Finding]:
    if now is None:
        if then is not None:
            yield Finding(True, "hook", f"{what}: its base is gone, so nothing calls it")
        return
    if misfit := _cannot_take(own, now):
        yield Finding(
            True, "hook", f"{what}: the base is called with ({', '.join(now.parameters)}), {misfit}"
        )
    if then is None:
        return
    if then.returns != now.returns:
        told = f"the base returns {' or '.join(now.returns)}, was {' or '.join(then.returns)}"
        yield Finding(
            not set(own.returns) <= {*now.returns, PASSED_ON},
            "hook",
            f"{what}: {told}; yours {' or '.join(own.returns)}",
        )
    if then.parameters != now.parameters:
        told = f"the base takes ({', '.join(now.parameters)}), was ({', '.join(then.parameters)})"
        yield Finding(False, "hook", f"{what}: {told}")
    if then.body != now.body:
        yield Finding(False, "hook", f"{what}: the body of the base changed; read it again")


def _cannot_take(own: Method, base: Method) -> str:
    """Why the override cannot be called as its base is; empty when it can."""
    if any(p.startswith("**") for p in own.parameters) and any(p[0] == "*" != p[-1:] for p in own.parameters):
        return ""
    names = [p.rstrip("=") for p in own.parameters if not p.startswith("*")]
    taken = [p.rstrip("=") for p in base.parameters if not p.startswith("*")]
    lacking = [p for p in taken if p not in names]
    if lacking and not any(p.startswith("*") and p != "*" for p in own.parameters):
        return f"yours has no {', '.join(lacking)}"
    extra = [p for p in own.parameters if not p.startswith("*") and not p.endswith("=") and p not in taken]
    return f"yours needs {', '.join(extra)} besides" if extra else ""


def _missing(cls: Class, bases: list[Class]) -> Iterator[Finding]:
    """Abstract methods that nobody gives a body."""
    for name in dict.fromkeys(n for b in bases for n in b.own_methods()):
        found = cls.method(name)
        if found is not None and any("abstractmethod" in ast.unparse(d) for d in found[1].decorator_list):
            yield Finding(True, "hook", f"{cls.node.name} lacks {name}, which {found[0].node.name} asks for")


def _super_calls(cls: Class, own: dict[str, Function], now: dict[str, Method]) -> Iterator[Finding]:
    """Calls of super() that do not fit; of attempts in a `try` it is enough that one does."""
    for name, node in own.items():
        attempts = {id(n) for t in ast.walk(node) if isinstance(t, ast.Try) for n in ast.walk(t)}
        made = [(call, id(n) in attempts) for n in ast.walk(node) if (call := _super_call(n)) is not None]
        for call, attempt in made:
            what = f"{cls.node.name}.{name} calls super().{call}"
            if call.method not in now:
                if not call.method.startswith("__"):
                    yield Finding(True, "hook", f"{what}, which is gone")
                continue
            misfit = call.misfit(now[call.method].parameters)
            same = [c for c, _ in made if c.method == call.method]
            if misfit and not (attempt and any(not c.misfit(now[c.method].parameters) for c in same)):
                yield Finding(True, "hook", f"{what}: {misfit}")


def _super_call(node: ast.AST) -> seams.Call | None:
    """`super().name(...)` without starred arguments."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name),
            args=args,
            keywords=words,
        ):
            if not any(isinstance(a, ast.Starred) for a in args) and all(w.arg for w in words):
                return seams.Call(name, len(args), tuple(str(w.arg) for w in words))
    return None


def _reads(cls: Class, own: dict[str, Function], bases: list[Class]) -> Iterator[Finding]:
    """Attributes of self that neither the class nor its bases have; only where all bases are in view."""
    if any(
        c.module.resolve_class(b) is None and ast.unparse(b) not in _PLAIN
        for c in cls.lineage()
        for b in c.node.bases
    ):
        return
    seen: set[str] = set()
    for name, node in own.items():
        for inner in ast.walk(node):
            match inner:
                case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Load()) if attr not in seen:
                    seen.add(attr)
                    if not attr.startswith("__") and seams.attribute(cls, attr) is False:
                        where = f"neither it nor {bases[0].node.name} has that"
                        yield Finding(True, "hook", f"{cls.node.name}.{name} reads self.{attr}: {where}")


_PLAIN = frozenset({"object", "ABC", "abc.ABC"})
