"""A function's meaning as text: its syntax tree without docstrings, annotations, comments and layout."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
_SKIPPED = frozenset({"ctx", "type_comment", "type_ignores", "type_params", "annotation", "returns", "kind"})
_SQL = re.compile(r"(?P<kept>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`)|(?:--[^\n]*|/\*.*?\*/|\s)+", re.DOTALL)


def definition_of(code: CodeType, tree: ast.Module) -> ast.AST | None:
    """The def or lambda that a code object was compiled from."""
    found = [node for node in ast.walk(tree) if _first_line(node) == code.co_firstlineno and _named(node, code.co_name)]
    if len(found) > 1:  # several lambdas on one line: told apart by where their bodies stand
        places = {(line, column) for line, _, column, _ in code.co_positions()}
        for node in found:
            if isinstance(node, ast.Lambda) and (node.body.lineno, node.body.col_offset) in places:
                return node
    return min(found, key=_size, default=None)


def class_named(qualname: str, tree: ast.Module) -> ast.ClassDef | None:
    """The class statement of that name, however deep it stands."""
    last = qualname.rpartition(".")[2]
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == last), None)


def dump(node: ast.AST, *, outermost: bool = True) -> list[Any]:
    """A nested list that is equal for equal meaning, on every version of Python."""
    result: list[Any] = [type(node).__name__]
    if isinstance(node, ast.AnnAssign):
        value = dump(node.value, outermost=False) if node.value else None
        return ["Assign", [dump(node.target, outermost=False)], value]
    if isinstance(node, ast.Assign):
        return ["Assign", [dump(t, outermost=False) for t in node.targets], dump(node.value, outermost=False)]
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED or value is None or value == []:
            continue
        if outermost and _runtime_tells(node, name):
            continue
        if name == "args" and outermost and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            result.append([name, dump(_without_defaults(value), outermost=False)])
            continue
        result.append([name, _dump_value(value, _body(node) if name == "body" else value)])
    return result


def normal_sql(text: str) -> str:
    """A query without comments and layout; what stands in quotes is kept as it is."""
    return _SQL.sub(lambda match: match["kept"] or " ", text).strip()


def local_imports(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a function imports when it is called: (module, names taken from it)."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                yield alias.name, ()
        elif isinstance(inner, ast.ImportFrom) and inner.module:
            yield inner.module, tuple(alias.name for alias in inner.names)


def attributes_of(name: str, node: ast.AST) -> tuple[set[str], bool]:
    """Which attributes of a module `name` are used, and whether the module is also used in any other way."""
    roots = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and inner.id == name]
    taken = [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == name
    ]
    return {inner.attr for inner in taken}, len(taken) < len(roots)


def _dump_value(value: Any, body: Any) -> Any:
    if isinstance(value, ast.AST):
        return dump(value, outermost=False)
    if isinstance(value, list):
        return [_dump_value(item, item) for item in body]
    return [type(value).__name__, repr(value)]


def _body(node: ast.AST) -> Any:
    """The statements without a leading docstring."""
    body = getattr(node, "body", None)
    has_docstring = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
    if has_docstring and isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        first = body[0].value
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return body[1:]
    return body


def _runtime_tells(node: ast.AST, field: str) -> bool:
    """Decorators and name of the outermost function: the object at hand already is their result."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and field in ("decorator_list", "name")


def _without_defaults(arguments: ast.arguments) -> ast.arguments:
    """Defaults are compared by their values, not by how they are written."""
    fields = {**dict(ast.iter_fields(arguments)), "defaults": [], "kw_defaults": []}
    return ast.arguments(**fields)


def _first_line(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else getattr(node, "lineno", -1)


def _named(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Lambda):
        return name == "<lambda>"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


def _size(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))
