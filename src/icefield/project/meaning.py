"""What a Python value means, as plain nested lists: functions by their syntax and all of the project they name."""

from __future__ import annotations

import ast
import dis
import enum
import functools
import json
import re
import sys
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from icefield.declare import Location, Query
from icefield.declare.settings import setting
from icefield.declare.tables import DECLARES
from icefield.errors import ColumnAtLoad, InvalidSetting
from icefield.project.modules import PREFIX
from icefield.project.syntax import (
    attributes_of,
    class_named,
    definition_of,
    dump,
    local_imports,
    normal_sql,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCALARS = (bool, int, float, complex, str, bytes, Decimal, date, time, timedelta, tzinfo, range, slice)
# What functools.wraps copies, what Python itself keeps on functions, and what a declaration leaves there.
_NOT_STATE = frozenset({"__wrapped__", "__signature__", "__type_params__", DECLARES})
_NOT_CLASS = frozenset({"__module__", "__doc__", "__firstlineno__", "__static_attributes__"})


class Code:
    """The code of one loaded project: which files are its own, and what they say."""

    def __init__(self, root: Path, find: Callable[[str], ModuleType | None]) -> None:
        self.root = root
        self.find = find
        self.trees: dict[str, ast.Module] = {}

    def owns(self, file: str) -> bool:
        """Whether a file belongs to the project itself, not to an environment inside of its folder."""
        return Path(file).is_relative_to(self.root) and "site-packages" not in Path(file).parts

    def neutral(self, text: str) -> str:
        """A text without what differs between loads and folders: the modules' unique names, the project's place."""
        return re.sub(rf"\b{PREFIX}\d+", "project", text.replace(str(self.root), "<project>"))

    def tree(self, file: str) -> ast.Module:
        """The syntax tree of one of its files."""
        if file not in self.trees:
            self.trees[file] = ast.parse(Path(file).read_bytes(), file)
        return self.trees[file]


class Meaning:
    """Walks from a table's function through all it names in the project; a walk belongs to one fingerprint."""

    def __init__(self, code: Code, location: Location) -> None:
        self.code = code
        self.location = location
        self.seen: dict[int, int] = {}
        self.alive: list[object] = []  # an id means an object only as long as the object lives

    def of(self, value: object) -> Any:
        """The meaning of any value an author's code may hold."""
        if value is None or value is Ellipsis:
            return repr(value)
        if isinstance(value, enum.Enum):
            return ["enum", self.of(type(value)), value.name]
        if isinstance(value, PurePath):
            return ["path", self.code.neutral(value.as_posix())]
        if isinstance(value, re.Pattern):
            return ["pattern", self.of(value.pattern), value.flags]
        if isinstance(value, SCALARS) and type(value).__module__ in ("builtins", "decimal", "datetime", "zoneinfo"):
            return [type(value).__name__, self.code.neutral(repr(value))]
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return [type(value).__name__, *(self.of(item) for item in value)]
        if isinstance(value, dict):
            return ["dict", *([self.of(key), self.of(item)] for key, item in value.items())]
        if isinstance(value, set | frozenset):
            return ["set", *sorted((self.of(item) for item in value), key=json.dumps)]
        return self._object(value)

    def _object(self, value: object) -> Any:
        if id(value) in self.seen:
            return ["seen", self.seen[id(value)]]
        self.seen[id(value)] = len(self.alive)
        self.alive.append(value)
        if type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark."):
            raise column_at_load(str(self.location))  # built under a live session: elsewhere it would not even load
        if isinstance(value, Query):
            return ["sql", normal_sql(value.text), list(value.parameters)]
        if isinstance(value, functools.partial):
            return ["partial", self.of(value.func), self.of(value.args), self.of(value.keywords)]
        if isinstance(value, MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, BuiltinFunctionType):
            return ["builtin", value.__module__, value.__qualname__]
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, ModuleType):
            return self._module(value)
        if hasattr(value, "__wrapped__"):  # functools.cache and its kind
            return ["wrapped", type(value).__name__, self.of(value.__wrapped__)]
        return ["object", self.of(type(value)), self._state(value)]

    def _function(self, function: FunctionType) -> Any:
        if function is setting:
            raise InvalidSetting(
                "a table's function calls setting() while it runs, so a changed value would go unnoticed",
                where=str(self.location),
                remedy="read it once at module level: LIMIT = setting(...), and use LIMIT in the function",
            )
        state = {name: value for name, value in vars(function).items() if name not in _NOT_STATE}
        told = [self.of(function.__defaults__), self.of(function.__kwdefaults__), self.of(dict(sorted(state.items())))]
        if not self.code.owns(function.__code__.co_filename):
            wrapped = getattr(function, "__wrapped__", None)
            inside = self.of(wrapped) if wrapped is not None else self._closure(function)
            # Not __module__ and __qualname__: functools.wraps copies those of the function inside.
            module = str(function.__globals__.get("__name__"))
            return ["library", module, function.__code__.co_qualname, inside, *told]
        node = definition_of(function.__code__, self.code.tree(function.__code__.co_filename))
        if node is None:  # made by exec: its instructions are all there is
            return ["code", repr(function.__code__.co_code), repr(function.__code__.co_consts)]
        named = [item for name in sorted(_globals_in(function.__code__)) for item in self._named(name, function, node)]
        imported = [self._imported(module, names) for module, names in local_imports(node)]
        return ["function", dump(node), *told, self._closure(function), named, imported]

    def _closure(self, function: FunctionType) -> list[Any]:
        found = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found.append([name, self.of(cell.cell_contents)])
            except ValueError:  # a name that is bound later, or never
                found.append([name])
        return found

    def _named(self, name: str, function: FunctionType, node: Any) -> Iterator[Any]:
        """The meaning of one global name: of a project's module, only the attributes that are used."""
        space = function.__globals__
        if name not in space:
            return
        value = space[name]
        if not isinstance(value, ModuleType):
            yield [name, self.of(value)]
            return
        if not self._is_own_module(value):
            return
        attributes, whole = attributes_of(name, node)
        for attribute in sorted(attributes):
            if hasattr(value, attribute):
                yield [f"{name}.{attribute}", self.of(getattr(value, attribute))]
        if whole:
            yield [name, self.of(value)]

    def _imported(self, name: str, names: tuple[str, ...]) -> Any:
        module = self.code.find(name)
        if module is None:
            return None
        return [name, *(self.of(getattr(module, part, None)) for part in names)] if names else [name, self.of(module)]

    def _class(self, cls: type) -> Any:
        module = sys.modules.get(cls.__module__)
        if module is None or not self._is_own_module(module) or not module.__file__:
            return ["class", self.code.neutral(cls.__module__), cls.__qualname__]
        node = class_named(cls.__qualname__, self.code.tree(module.__file__))
        if node is None:  # made by a call, as by namedtuple: its plain attributes are what it was made of
            plain = {
                n: v for n, v in sorted(vars(cls).items()) if isinstance(v, (str, int, tuple)) and n not in _NOT_CLASS
            }
            return ["made", cls.__qualname__, self.of(plain)]
        methods = [value for _, value in sorted(vars(cls).items()) if self._is_own_function(value)]
        bases = [self.of(base) for base in cls.__bases__]
        return ["class", dump(node), bases, [self.of(_plain(m)) for m in methods]]

    def _module(self, module: ModuleType) -> Any:
        """A module used as a whole: all of its text, and what it takes from the project's other modules."""
        if not self._is_own_module(module) or not module.__file__:
            return ["module", module.__name__]
        taken = [
            self.of(value)
            for _, value in sorted(vars(module).items())
            if self._is_own_function(value) and getattr(value, "__module__", None) != module.__name__
        ]
        return ["module", dump(self.code.tree(module.__file__)), taken]

    def _state(self, value: object) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return [[f.name, self.of(getattr(value, f.name, None))] for f in fields(value) if f.compare]
        if type(value).__reduce__ is object.__reduce__ and hasattr(value, "__dict__"):
            return [[name, self.of(item)] for name, item in sorted(vars(value).items())]
        try:
            reduced = value.__reduce_ex__(2)
        except (TypeError, ValueError, AttributeError):
            return "opaque"
        return reduced if isinstance(reduced, str) else [self.of(part) for part in reduced[1:3]]

    def _is_own_module(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return file is not None and self.code.owns(file)

    def _is_own_function(self, value: object) -> bool:
        code = getattr(_plain(value), "__code__", None)
        return isinstance(code, CodeType) and self.code.owns(code.co_filename)


def column_at_load(where: str) -> ColumnAtLoad:
    """The refusal of a Column outside of a function, with the two ways out."""
    return ColumnAtLoad(
        "a Spark Column is created while the project loads, before Spark has started",
        where=where,
        remedy="create it inside a function, or keep it as a SQL string: COMPLETED = \"status = 'completed'\"",
    )


def udf_at_load(where: str) -> ColumnAtLoad:
    """The refusal of a UDF whose type is text, outside of a function, with the two ways out."""
    return ColumnAtLoad(
        "a UDF whose type is given as a string needs a Spark session, but there is none while the project loads",
        where=where,
        remedy="use a type from pyspark.sql.types, as in @F.udf(IntegerType()), or create the UDF inside the table's"
        " function",
    )


def _plain(value: object) -> object:
    """The function inside of a static method, class method or property."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _globals_in(code: CodeType) -> set[str]:
    """The global names a code object reads, also from inside of its nested functions and comprehensions."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _globals_in(constant)
    return found - {"__builtins__", "__spec__", "__loader__"}
