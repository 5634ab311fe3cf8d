"""Where declarations go while a project loads: a registry held by a context variable, never by a module."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.errors import InvalidFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from icefield.declare.tables import Table

PACKAGE = str(Path(__file__).parent.parent) + "/"


@dataclass(frozen=True, slots=True)
class Location:
    """The file (relative to the project) and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True, kw_only=True)
class Registry:
    """What one load of one project has declared so far, and what it read to do so."""

    root: Path | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    unapplied: dict[object, tuple[str, Location]] = field(default_factory=dict)
    files: set[Path] = field(default_factory=set)
    used_settings: dict[str, object] = field(default_factory=dict)

    def owns(self, file: str) -> bool:
        """Whether a file is the project's own."""
        return self.root is not None and Path(file).is_relative_to(self.root)

    def relative(self, file: str) -> str:
        """The file as messages name it."""
        path = Path(file)
        if self.root is not None and path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return path.name if self.root is None else file


_current: ContextVar[Registry | None] = ContextVar("icefield_registry", default=None)


def current() -> Registry | None:
    """The registry of the load that is under way, if there is one."""
    return _current.get()


@contextmanager
def collecting(*, root: Path | None = None, settings: Mapping[str, object] | None = None) -> Iterator[Registry]:
    """Collect every table declared inside the block; a `table(...)` left unapplied is an error at its end."""
    registry = Registry(root=root, settings=settings or {})
    token = _current.set(registry)
    try:
        yield registry
    finally:
        _current.reset(token)
    for name, location in registry.unapplied.values():
        raise InvalidFunction(
            f'table("{name}", ...) is applied to no function, so it declares nothing',
            where=str(location),
            remedy=f'put @ before it and a function below, or write table("{name}", ...)(function)',
        )


def caller() -> Location:
    """The line of the author's file that is being executed."""
    registry = current()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if registry is not None and registry.owns(file):
            break
        if not file.startswith((PACKAGE, "<")):
            break
        frame = frame.f_back
    if frame is None:
        return Location("<unknown>", 0)
    return Location(registry.relative(file) if registry else Path(file).name, frame.f_lineno)


def caller_file() -> Path | None:
    """The author's file that is being executed, if it is a file at all."""
    registry = current()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (registry is not None and registry.owns(file)) or not file.startswith((PACKAGE, "<")):
            path = Path(file)
            return path if path.is_file() else None
        frame = frame.f_back
    return None
