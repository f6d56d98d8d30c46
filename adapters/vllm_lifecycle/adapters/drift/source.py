"""A vLLM source tree: its modules as syntax trees, and names, classes and methods looked up through imports and bases.

Static and honest about it: what cannot be resolved is None, never a guess.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
PACKAGES = ("vllm", "vllm_omni")
SCHEDULER = "v1/core/sched/scheduler.py"
"""The file that makes a folder a tree of vLLM."""


class NoTree(Exception):
    """There is no vLLM source where it was looked for; the text is one line with the repair."""


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the tree, with the module it stands in."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """`package.module:Class`."""
        return f"{self.module.name}:{self.node.name}"

    def bases(self) -> Iterator[Class]:
        """The base classes that the tree has, in order."""
        for base in self.node.bases:
            found = self.module.resolve_class(base)
            if found is not None:
                yield found

    def lineage(self) -> list[Class]:
        """The class and its bases, nearest first."""
        found: list[Class] = [self]
        for base in self.bases():
            found += [c for c in base.lineage() if c.name not in {f.name for f in found}]
        return found

    def own_methods(self) -> dict[str, Function]:
        """The methods that it defines itself."""
        return {n.name: n for n in self.node.body if isinstance(n, Function)}

    def method(self, name: str) -> tuple[Class, Function] | None:
        """The method of that name and the class that defines it, through the bases."""
        for cls in self.lineage():
            if name in cls.own_methods():
                return cls, cls.own_methods()[name]
        return None


@dataclass(eq=False)
class Module:
    """One module of the tree."""

    tree: Tree
    name: str
    path: Path
    code: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.code):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)

    def definition(self, name: str) -> tuple[Module, ast.stmt] | None:
        """The class or function that a name of this module means, followed through imports."""
        for node in self.code.body:
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                return self, node
        if name in self.imports:
            module, original = self.imports[name]
            other = self.tree.module(module)
            if other is not None and other is not self:
                return other.definition(original)
        return None

    def resolve_class(self, expression: ast.expr | None) -> Class | None:
        """The class that an annotation or a base names; of `X | None` and `Optional[X]` that is X."""
        match expression:
            case ast.Name(id=name):
                found = self.definition(name)
                if found is not None and isinstance(found[1], ast.ClassDef):
                    return Class(found[0], found[1])
            case ast.Constant(value=str(text)):
                try:
                    return self.resolve_class(ast.parse(text, mode="eval").body)
                except SyntaxError:
                    return None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.resolve_class(left) or self.resolve_class(right)
            case ast.Subscript(value=ast.Name(id="Optional" | "type"), slice=inner):
                return self.resolve_class(inner)
        return None


class Tree:
    """The packages of a source tree; `root` is the folder that holds them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    @property
    def version(self) -> str:
        """The release, as its version file or the name of its metadata says; empty when neither is there."""
        for name in ("_version.py", "version.py"):
            path = self.root / "vllm" / name
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                found = re.search(
                    r"^(?:__version__\s*=\s*)?(?:version|__version__)\s*=\s*['\"]([\d.]+\d)", text, re.M
                )
                if found:
                    return found[1]
        for path in sorted(self.root.glob("vllm*.dist-info")):
            found = re.match(r"vllm(?:_cpu|_tpu)?-([\d.]+\d)", path.name)
            if found:
                return found[1]
        return ""

    def module(self, name: str) -> Module | None:
        """The module of a dotted name; None when the tree has none."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return Module(self, name, file, parse(file))
        return None

    def find(self, name: str) -> Class | None:
        """The class of a name `package.module:Class`."""
        module, _, cls = name.partition(":")
        found = self.module(module)
        definition = found.definition(cls) if found else None
        if definition is None or not isinstance(definition[1], ast.ClassDef):
            return None
        return Class(definition[0], definition[1])

    def mentioning(self, word: str, *folders: str) -> Iterator[Module]:
        """The modules in some folders whose text has a word, in order of their paths."""
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*.py")):
                if word.encode() not in path.read_bytes():
                    continue
                parts = path.relative_to(self.root).with_suffix("").parts
                found = self.module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
                if found is not None:
                    yield found


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file; NoTree when it is no Python that can be read."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise NoTree(f"{path} cannot be read as Python ({error}): name a whole source tree of vLLM") from None


def find_tree(place: str) -> Tree:
    """The tree at a path, or of a package installed in this environment (`vllm`); NoTree when there is none."""
    path = Path(place)
    for root in (path, path.parent):
        if (root / "vllm" / SCHEDULER).is_file() and (root == path or path.name in PACKAGES):
            return Tree(root.resolve())
    if not path.exists() and place in PACKAGES:
        spec = importlib.util.find_spec(place)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(location).parent
            if (root / "vllm" / SCHEDULER).is_file():
                return Tree(root)
        raise NoTree(f"{place} is not installed here: install it, or name the folder of a vLLM source tree")
    if not path.exists():
        raise NoTree(
            f"there is no {place}: name the folder of a vLLM source tree, or `vllm` for the installed one"
        )
    raise NoTree(f"{place} holds no vllm/{SCHEDULER}: name the folder that has the package vllm in it")
