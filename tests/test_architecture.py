"""Boundaries, read off the syntax tree of every module: who may import what, where a name lives, how large a module is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "vllm_lifecycle"
LAYERS = ("spec", "statemachine", "adapters")
"""Lowest first; a layer imports itself and lower ones."""

INDUCTION = "vllm_lifecycle.spec.check.induction"
SEARCH = ("vllm_lifecycle.spec.check.explicit", "vllm_lifecycle.spec.check.liveness")
HOMES: dict[str, tuple[str, ...]] = {
    "z3": (f"{INDUCTION}.smt",),
    "cvc5": (INDUCTION,),
    "numpy": SEARCH,
    "scipy": SEARCH,
    "transitions": ("vllm_lifecycle.statemachine",),
    "msgspec": ("vllm_lifecycle.statemachine", "vllm_lifecycle.adapters"),
    "typer": ("vllm_lifecycle.adapters.cli",),
    "jinja2": ("vllm_lifecycle.adapters.report",),
    "markupsafe": ("vllm_lifecycle.adapters.report",),
    "rich": ("vllm_lifecycle.adapters.cli",),
    "hypothesis": ("vllm_lifecycle.adapters",),
    "pytest": ("vllm_lifecycle.adapters",),
    "vllm": ("vllm_lifecycle.adapters",),
    "vllm_omni": ("vllm_lifecycle.adapters",),
    "torch": ("vllm_lifecycle.adapters",),
}
"""External package -> modules or folders that may import it; one that is not listed may be imported nowhere."""

FILES = {"glob", "io", "pathlib", "shutil", "socket", "sqlite3", "tempfile", "urllib"}
"""What touches files or the network: only in adapters."""

LONGEST = 400


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        return _parse(self.path)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def layer(self) -> str:
        return self.name.split(".")[1]

    def imports(self) -> Iterator[tuple[str, str | None]]:
        """(module, name) for `from module import name`, (module, None) for `import module`; relative ones resolved."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = self.name.split(".")
                    anchor = parts[: len(parts) - node.level + self.is_package]
                    base = ".".join([*anchor, *([base] if base else [])])
                yield from ((base, alias.name) for alias in node.names)

    def defined(self) -> set[str]:
        """Names that the module itself gives a value at top level, and those that a package offers by `__all__`."""
        names: set[str] = set()
        for node in self.tree.body:
            for inner in ast.walk(node) if isinstance(node, ast.If | ast.Try) else (node,):
                names |= _bound(inner)
        return names


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _bound(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if "__all__" in names:
                names |= set(ast.literal_eval(node.value))
            return names
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def _modules() -> dict[str, Module]:
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = list(path.relative_to(ROOT / layer).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path)
    return found


MODULES = _modules()
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=lambda m: m.name)


def _below(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_every_layer_has_modules_and_the_package_itself_has_none() -> None:
    assert {m.layer for m in MODULES.values()} == set(LAYERS)
    assert not [layer for layer in LAYERS if (ROOT / layer / PACKAGE / "__init__.py").exists()]


@every_module
def test_imports_point_from_adapters_over_statemachine_to_spec(module: Module) -> None:
    rank = LAYERS.index(module.layer)
    for target, _ in module.imports():
        if target.startswith(f"{PACKAGE}."):
            layer = target.split(".")[1]
            assert LAYERS.index(layer) <= rank, (
                f"{module.name} imports {target}: move what it needs down to {module.layer}"
            )


@every_module
def test_external_packages_are_imported_only_at_home(module: Module) -> None:
    for target, _ in module.imports():
        top = target.split(".")[0]
        if top == PACKAGE or top in sys.stdlib_module_names:
            continue
        assert top in HOMES, (
            f"{module.name} imports {top}, which has no home: list it in HOMES and pyproject.toml"
        )
        assert _below(module.name, HOMES[top]), (
            f"{module.name} imports {top}: only {', '.join(HOMES[top])} may"
        )


@every_module
def test_files_are_touched_only_in_adapters(module: Module) -> None:
    if module.layer == "adapters":
        return
    touched = {target.split(".")[0] for target, _ in module.imports()} & FILES
    assert not touched, (
        f"{module.name} imports {', '.join(touched)}: files and the network belong to adapters"
    )
    calls = [n for n in ast.walk(module.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert not [c for c in calls if c.func.id == "open"], f"{module.name} opens a file"  # type: ignore[attr-defined]


@every_module
def test_the_language_needs_the_standard_library_only(module: Module) -> None:
    if not _below(module.name, ("vllm_lifecycle.spec.lang",)):
        return
    for target, _ in module.imports():
        inside = _below(target, ("vllm_lifecycle.spec.lang",))
        assert inside or target.split(".")[0] in sys.stdlib_module_names, f"{module.name} imports {target}"


@every_module
def test_a_name_is_imported_from_its_one_home(module: Module) -> None:
    for target, name in module.imports():
        if name is None or not target.startswith(f"{PACKAGE}.") or f"{target}.{name}" in MODULES:
            continue
        if target not in MODULES:  # a folder: only its modules can be imported from it, and this is none
            pytest.fail(f"{module.name} imports {name} from {target}, which has no such module")
        home = MODULES[target].defined()
        assert name in home, (
            f"{module.name} imports {name} from {target}, which only borrows it: import it from its home"
        )


@every_module
def test_a_module_fits_a_head(module: Module) -> None:
    lines = len(module.path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{module.name} has {lines} lines: split it at a second idea"


def _imported() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports, also those imported for types only or inside a function."""
    found: dict[str, set[str]] = {}
    for module in MODULES.values():
        targets = {f"{t}.{name}" if f"{t}.{name}" in MODULES else t for t, name in module.imports()}
        found[module.name] = {t for t in targets if t in MODULES and not MODULES[t].is_package}
    return found


def test_no_module_imports_itself_in_a_circle() -> None:
    left = _imported()
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    stuck = {name: sorted(targets & left.keys()) for name, targets in left.items()}
    assert not stuck, f"these modules import each other, or what does: {stuck}"
