"""Facts of a tree that can be recorded and compared: statuses, where they are assigned, and the shape of every method."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256

import msgspec

from vllm_lifecycle.adapters.drift.source import Class, Function, Tree

STATUS = "vllm.v1.request:RequestStatus"
WHERE = ("vllm/v1", "vllm_omni")
"""Folders in which `.status` is the status of a request."""
COMPUTED = "computed"
"""Target of an assignment whose value is no literal status."""
PASSED_ON = "as its base"
"""Shape of results that a method passes on from the method that it overrides."""
SKIPPED = frozenset({"ctx", "type_comment", "type_params", "kind", "returns", "annotation"})
"""Parts of a syntax tree that say nothing about behaviour, or differ between versions of Python."""


class Method(msgspec.Struct, frozen=True):
    """The shape of a method: parameters as written, how its results look, and a hash of what it does."""

    parameters: tuple[str, ...]
    returns: tuple[str, ...]
    body: str


class Assignment(msgspec.Struct, frozen=True, order=True):
    """`X.status = TARGET` in a function of a module."""

    module: str
    function: str
    target: str


class Facts(msgspec.Struct, frozen=True):
    """What is recorded of one release; by class its methods, and how each fact of the tables is observed.

    `names` are those of the names that the adapters import which it has.
    """

    version: str
    statuses: tuple[str, ...]
    assignments: tuple[Assignment, ...]
    classes: dict[str, dict[str, Method]]
    observed: dict[str, dict[str, str]]
    names: tuple[str, ...]


def statuses(tree: Tree) -> tuple[str, ...]:
    """The members of RequestStatus, in order; those that vllm-omni adds at the end."""
    cls = tree.find(STATUS)
    own = [] if cls is None else _members(cls.node)
    added = [
        node.args[1].value
        for module in tree.mentioning("extend_enum", "vllm_omni")
        for node in ast.walk(module.code)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("extend_enum")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
        and "RequestStatus" in ast.unparse(node.args[0])
    ]
    return tuple(dict.fromkeys((*own, *map(str, added))))


def _members(node: ast.ClassDef) -> list[str]:
    return [
        target.id
        for row in node.body
        if isinstance(row, ast.Assign)
        for target in row.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    ]


def assignments(tree: Tree) -> Iterator[Assignment]:
    """Every assignment to a status of a request."""
    for module in tree.mentioning("RequestStatus", *WHERE):
        for name, function in _functions(module.code):
            for target, value in _status_writes(function):
                for status in _targets(value):
                    if status != COMPUTED or _is_request(target):
                        yield Assignment(module.name, name, status)


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions and methods with their qualified names, not those inside functions."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, Function)
            )


def _status_writes(function: Function) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            pairs = [(node.target, node.value)]
        for target, value in pairs:
            if isinstance(target, ast.Attribute) and target.attr == "status" and value is not None:
                yield target, value


def _is_request(target: ast.Attribute) -> bool:
    """Whether what has the status is called a request."""
    owner = ast.unparse(target.value)
    return owner == "self" or "req" in owner.lower()


def _targets(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Attribute(value=ast.Name(id="RequestStatus"), attr=name):
            yield name
        case ast.IfExp(body=body, orelse=other):
            yield from _targets(body)
            yield from _targets(other)
        case _:
            yield COMPUTED


def methods(cls: Class) -> dict[str, Method]:
    """The methods of a class, also those it inherits within the tree."""
    found: dict[str, Method] = {}
    for owner in reversed(cls.lineage()):
        for name, node in owner.own_methods().items():
            found[name] = method(node)
    return dict(sorted(found.items()))


def method(node: Function) -> Method:
    """The shape of one method."""
    return Method(parameters(node), returns(node), body_of(node))


def parameters(node: Function) -> tuple[str, ...]:
    """Parameters without self, as `name`, `name=`, `*`, `*name`, `**name`."""
    a = node.args
    names = [p.arg for p in (*a.posonlyargs, *a.args)]
    first_default = len(names) - len(a.defaults)
    found = [f"{n}=" if i >= first_default else n for i, n in enumerate(names)]
    if a.vararg or a.kwonlyargs:
        found.append(f"*{a.vararg.arg if a.vararg else ''}")
    found += [
        f"{p.arg}=" if d is not None else p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    if a.kwarg:
        found.append(f"**{a.kwarg.arg}")
    return tuple(n for n in found if n not in ("self", "cls"))


def returns(node: Function) -> tuple[str, ...]:
    """What the results look like, each shape once: `nothing`, `a value`, `N values` for tuples, `a generator`, `as its base`."""
    shapes: dict[str, None] = {}
    for inner in _own_nodes(node):
        match inner:
            case ast.Yield() | ast.YieldFrom():
                shapes["a generator"] = None
            case ast.Return(value=ast.Call() as call) if _passes_on(call, node.name):
                shapes[PASSED_ON] = None
            case ast.Return(value=None | ast.Constant(value=None)):
                shapes["nothing"] = None
            case ast.Return(value=ast.Tuple(elts=elements)) if elements:
                shapes[f"{len(elements)} values"] = None
            case ast.Return():
                shapes[_annotated(node)] = None
    return tuple(sorted(shapes)) or ("nothing",)


def _passes_on(call: ast.Call, name: str) -> bool:
    """`super().name(...)` or `Base.name(self, ...)` in a method of that name: its results have the shape of the base's."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=called)):
            return called == name
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=called), args=[ast.Name(id="self"), *_]):
            return called == name
    return False


def _annotated(node: Function) -> str:
    """The shape of a returned expression: by the annotation where that says a tuple, else one value."""
    match node.returns:
        case ast.Subscript(value=ast.Name(id="tuple" | "Tuple"), slice=ast.Tuple(elts=elements)):
            if not any(isinstance(e, ast.Constant) and e.value is ... for e in elements):
                return f"{len(elements)} values"
    return "a value"


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, not those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.Lambda | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def body_of(node: Function) -> str:
    """A hash of what a function does: without documentation, annotations and layout, the same on every Python."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return sha256("\0".join(part for row in body for part in _shape(row)).encode()).hexdigest()[:12]


def _shape(value: object) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield type(value).__name__
        for name, inner in ast.iter_fields(value):
            if name not in SKIPPED:
                yield from _shape(inner)
    elif isinstance(value, list):
        yield str(len(value))
        for inner in value:
            yield from _shape(inner)
    else:
        yield repr(value)
