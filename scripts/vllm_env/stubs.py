"""Lets a package be imported whose heavy, unused dependencies are absent.

This file is copied into the environment's site-packages and started by a `.pth` file there, so a plain
`import vllm_omni` works in that environment. A package that is really installed is never stubbed:
the finder stands last on `sys.meta_path`. A stub module has any attribute, and each attribute is an empty class,
so `from x.y import Z`, `class A(Z)` and `@Z` all work; calling it with anything else makes an object that does
nothing.

Rejected: installing the real packages (2 GB for code that no scheduler runs), and empty modules on disk
(every imported name would have to be listed).
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any


class _Anything:
    """Stands for a class, a decorator or a value of a stubbed package."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A function given to a name of a stubbed package comes back as it was: the name is a decorator."""
        decorates = "_stub" in vars(cls) and len(args) == 1 and isinstance(args[0], FunctionType)
        return args[0] if decorates else super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Stub(ModuleType):
    """A module of a stubbed package: every public name is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        value: Any = "0" if name == "__version__" else type(name, (_Anything,), {"_stub": True})
        setattr(self, name, value)
        return value


class StubFinder(MetaPathFinder, Loader):
    """Finds the named packages, and all their submodules, as stubs."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A stub's spec for a listed package or a submodule of it; None for everything else."""
        if fullname.partition(".")[0] not in self.names:
            return None
        return ModuleSpec(fullname, self, origin="stub", is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The empty stub module."""
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install(names: Sequence[str]) -> None:
    """Puts one finder for `names` at the end of the import system."""
    sys.meta_path.append(StubFinder(names))
