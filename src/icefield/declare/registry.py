"""Where declarations go while a project loads: a registry held by a context variable, never by a module."""

# pathlib would be a tenth of what importing icefield costs, and authors import it everywhere.
# ruff: noqa: PTH109, PTH113, PTH119, PTH120
from __future__ import annotations

import os.path
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.errors import InvalidFunction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from icefield.declare.tables import Table

PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


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
    files: set[str] = field(default_factory=set)
    used_settings: dict[str, object] = field(default_factory=dict)

    def owns(self, file: str) -> bool:
        """Whether a file is the project's own."""
        return self.root is not None and file.startswith(f"{self.root}{os.sep}")

    def relative(self, file: str) -> str:
        """The file as messages name it."""
        if self.root is None:
            return os.path.basename(file)
        return os.path.relpath(file, self.root).replace(os.sep, "/") if self.owns(file) else file


_current: ContextVar[Registry | None] = ContextVar("icefield_registry", default=None)
_place: ContextVar[Location | None] = ContextVar("icefield_place", default=None)


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
            f'table("{name}", ...) is not applied to a function, so it declares nothing',
            where=str(location),
            remedy=f'put @ in front of it and a function below it, or write table("{name}", ...)(function)',
        )


@contextmanager
def located(place: Location) -> Iterator[None]:
    """What is declared inside the block stands at that place: a file that is not Python's, which a call has read."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def caller() -> Location:
    """The line of the author's file that is being executed."""
    if (place := _place.get()) is not None:
        return place
    frame = _author()
    if frame is None:
        return Location("<unknown>", 0)
    file, registry = frame.f_code.co_filename, current()
    return Location(registry.relative(file) if registry else os.path.basename(file), frame.f_lineno)


def caller_folder() -> str:
    """The folder of the author's file that is being executed; the current one where there is no file."""
    frame = _author()
    file = frame.f_code.co_filename if frame else ""
    return os.path.dirname(file) if os.path.isfile(file) else os.getcwd()


def _author() -> FrameType | None:
    """The innermost frame that is not icefield's: a project's file counts as its author's wherever it lies."""
    registry = current()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (registry is not None and registry.owns(file)) or not file.startswith((PACKAGE, "<")):
            return frame
        frame = frame.f_back
    return None
