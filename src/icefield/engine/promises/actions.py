"""Watches a function while it is called: which results it asks Spark for, and which line makes which frame."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Methods that have Spark compute something, and properties through which that is done.
_ACTIONS = (
    "approxQuantile",
    "checkpoint",
    "collect",
    "corr",
    "count",
    "cov",
    "crosstab",
    "describe",
    "first",
    "foreach",
    "foreachPartition",
    "freqItems",
    "head",
    "isEmpty",
    "localCheckpoint",
    "show",
    "summary",
    "tail",
    "take",
    "toArrow",
    "toJSON",
    "toLocalIterator",
    "toPandas",
    "transpose",
    "writeTo",
)
_PROPERTIES = ("rdd", "write")
_one_at_a_time = threading.Lock()


@dataclass(slots=True)
class Watched:
    """What a function did: methods by which it had Spark compute something, and the lines that made frames."""

    asked: list[tuple[str, DataFrame]] = field(default_factory=list)
    lines: list[tuple[str, DataFrame]] = field(default_factory=list)


def _read(member: Any, rows: DataFrame) -> Any:
    return member.__get__(rows, DataFrame)


@contextmanager
def watching(root: Path) -> Iterator[Watched]:
    """What this thread does with frames in the meantime; lines are those of the project's files.

    What Spark counts itself does not tell it: a view for `spark.sql(..., orders=orders)` is a query for it.
    """
    watched = Watched()
    here = threading.get_ident()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def asking(rows: DataFrame, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == here:
                watched.asked.append((name, rows))
            return method(rows, *args, **options)

        return asking

    def making(rows: DataFrame, *args: Any, **options: Any) -> None:
        own["__init__"](rows, *args, **options)
        if threading.get_ident() == here and (line := _line(root)):
            watched.lines.append((line, rows))

    with _one_at_a_time:
        own = {name: getattr(DataFrame, name) for name in (*_ACTIONS, "__init__")}
        own |= {name: DataFrame.__dict__[name] for name in _PROPERTIES}
        for name, member in own.items():
            if name == "__init__":
                setattr(DataFrame, name, making)
            elif name in _PROPERTIES:
                setattr(DataFrame, name, property(noting(name, functools.partial(_read, member))))
            else:
                setattr(DataFrame, name, noting(f"{name}()", member))
        try:
            yield watched
        finally:
            for name, member in own.items():
                setattr(DataFrame, name, member)


def _line(root: Path) -> str:
    """The project's line that is being executed, as messages name it; empty where there is none."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(f"{root}/") and "site-packages" not in file:
            return f"{Path(file).relative_to(root).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # the last one has none
    return ""
