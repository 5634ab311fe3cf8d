"""Watches a function while it is called: which results it asks Spark for, and which line makes which frame."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.group import GroupedData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Methods that have Spark compute something, and properties through which that is done.
_ACTIONS = (
    "_collect_as_arrow",
    "_show_string",
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
    "inputFiles",
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
    """What is done with frames in the meantime, in whatever thread; lines are those of the project's files.

    What Spark counts itself does not tell it: a view for `spark.sql(..., orders=orders)` is a query for it.
    """
    watched = Watched()
    here = threading.get_ident()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def asking(rows: DataFrame, *args: Any, **options: Any) -> Any:
            watched.asked.append((name, rows))
            return method(rows, *args, **options)

        return asking

    def pivoting(group: GroupedData, column: str, values: Any = None) -> Any:
        if values is None:
            watched.asked.append(("pivot() without values", cast("DataFrame", group._df)))
        return pivot(group, column, values)

    def fitting(estimator: Any, dataset: DataFrame, *args: Any, **options: Any) -> Any:
        watched.asked.append((f"{type(estimator).__name__}.fit()", dataset))
        assert fit is not None
        return fit(estimator, dataset, *args, **options)

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
        pivot, GroupedData.pivot = GroupedData.pivot, pivoting  # type: ignore[method-assign,assignment]
        learning = sys.modules.get("pyspark.ml.base")  # only where the project has imported it
        fit = None if learning is None else learning.Estimator.fit
        if learning is not None:
            learning.Estimator.fit = fitting
        try:
            yield watched
        finally:
            GroupedData.pivot = pivot  # type: ignore[method-assign]
            if learning is not None:
                learning.Estimator.fit = fit
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
