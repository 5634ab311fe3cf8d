"""Running a project's files so that they declare their tables, and explaining what goes wrong in them."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.declare import Table, collecting
from icefield.errors import IcefieldError, ImportFailed
from icefield.project.config import Config, table_files
from icefield.project.meaning import column_at_load, udf_at_load
from icefield.project.modules import Package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the files declared, in modules that live until the package is unloaded."""

    package: Package
    tables: tuple[Table, ...]
    queries: frozenset[str]

    def files(self) -> tuple[Path, ...]:
        """Every file read so far; fingerprints may import more, so ask after taking them."""
        modules = self.package.modules().values()
        return tuple(sorted({Path(m.__file__) for m in modules if m.__file__} | {Path(q) for q in self.queries}))


def load(config: Config) -> Loaded:
    """Import every file that declares tables; the caller unloads the package when it needs no function of it."""
    package = Package(config.root)
    try:
        with collecting(root=config.root, settings=config.profile.settings) as registry:
            for file in table_files(config):
                with explaining(file, config.root):
                    package.module(file)
    except BaseException:
        package.unload()
        raise
    return Loaded(package=package, tables=tuple(registry.tables), queries=frozenset(registry.files))


def ship_by_value(modules: dict[str, ModuleType]) -> None:
    """Spark's Python workers cannot import a project's modules by their unique names: send what UDFs use by value."""
    cloudpickle = sys.modules.get("pyspark.cloudpickle")  # not there: the project uses no pyspark, or has not yet
    if cloudpickle is not None:
        for module in modules.values():
            cloudpickle.register_pickle_by_value(module)


@contextmanager
def explaining(file: Path, root: Path) -> Iterator[None]:
    """Errors of the author's code keep their message and gain the author's line."""
    try:
        yield
    except IcefieldError:
        raise
    except (Exception, SystemExit) as problem:
        where = _place(problem, file, root)
        if _is_udf_of_a_type_as_text(problem):
            raise udf_at_load(where) from problem
        if _is_column_without_spark(problem):
            raise column_at_load(where) from problem
        said = str(problem) if isinstance(problem, SyntaxError) else f"{type(problem).__name__}: {problem}"
        raise ImportFailed(
            f"{file.relative_to(root).as_posix()} cannot be imported: {said}", where=where, remedy=_remedy(problem)
        ) from problem


def _is_column_without_spark(problem: BaseException) -> bool:
    """Without a session pyspark fails a bare assertion; a few of its functions say so in an error of their own."""
    frames = traceback.extract_tb(problem.__traceback__)
    inside = bool(frames) and "pyspark" in Path(frames[-1].filename).parts
    return inside and (isinstance(problem, AssertionError) or NO_SESSION in str(problem))


def _is_udf_of_a_type_as_text(problem: BaseException) -> bool:
    """Spark alone reads a type that is given as text."""
    frames = traceback.extract_tb(problem.__traceback__)
    return NO_SESSION in str(problem) and any(frame.name == "_parse_datatype_string" for frame in frames)


def _place(problem: BaseException, file: Path, root: Path) -> str:
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{_relative(problem.filename, root)}:{problem.lineno}"
    own = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).is_relative_to(root)]
    return f"{_relative(own[-1].filename, root)}:{own[-1].lineno}" if own else file.relative_to(root).as_posix()


def _relative(file: str, root: Path) -> str:
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file


def _remedy(problem: BaseException) -> str:
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        return f"install {problem.name.partition('.')[0]} next to icefield, or correct the import"
    return (
        "correct that line; if the file declares no tables, exclude it by listing those that do under [project] in"
        ' icefield.toml: tables = ["..."]'
    )
