"""Importing a project's files under names of their own, so that two projects can live in one process.

Each load makes a package with a unique name whose path is the project's folder. Inside of the project's modules,
`import silver` finds the project's silver.py first: they have their own `__import__`, which also serves imports inside
of functions, later on.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.util
import itertools
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PREFIX = "icefield_project_"
_numbers = itertools.count(1)


class Package:
    """One load of one project: its modules live under a unique package name until `unload`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = f"{PREFIX}{next(_numbers)}"
        package = ModuleType(self.name)
        package.__path__ = [str(root)]
        self.builtins = {**vars(builtins), "__import__": self._import}
        sys.modules[self.name] = package
        _packages[self.name] = self

    def module(self, file: Path) -> ModuleType:
        """Import one file of the project."""
        parts = file.relative_to(self.root).with_suffix("").parts
        return importlib.import_module(".".join((self.name, *parts)))

    def find(self, name: str) -> ModuleType | None:
        """The project's module of that name, imported if need be; None if the project has no such file."""
        return importlib.import_module(f"{self.name}.{name}") if self.has(name) else None

    def has(self, name: str) -> bool:
        """Whether a module name begins with a file or package of the project."""
        top = name.partition(".")[0]
        return (self.root / f"{top}.py").is_file() or (self.root / top / "__init__.py").is_file()

    def modules(self) -> dict[str, ModuleType]:
        """The project's modules imported so far, by their unique names."""
        inside = f"{self.name}."
        loaded = sys.modules.copy()  # at once: other threads may be importing
        return {name: module for name, module in loaded.items() if name.startswith(inside)}

    def unload(self) -> None:
        """Forget the modules; functions taken from them keep working."""
        for name in [self.name, *self.modules()]:
            sys.modules.pop(name, None)
        _packages.pop(self.name, None)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level == 0 and self.has(name):
            module = builtins.__import__(f"{self.name}.{name}", globals, locals, fromlist or (), 0)
            return module if fromlist else sys.modules[f"{self.name}.{name.partition('.')[0]}"]
        return builtins.__import__(name, globals, locals, fromlist or (), level)


class _Loader(SourceFileLoader):
    """Runs a project's file with the project's own `__import__`, always from its source."""

    def get_code(self, fullname: str) -> CodeType:
        # Not from compiled files: they are keyed by whole seconds and size, so a quick edit could be missed.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        package = _packages[module.__name__.partition(".")[0]]
        vars(module)["__builtins__"] = package.builtins
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules below the packages of loaded projects and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _packages or path is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Loader(fullname, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


_packages: dict[str, Package] = {}
sys.meta_path.insert(0, _Finder())
