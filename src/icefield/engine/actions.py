"""Notices functions that ask Spark for a result while they are called."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
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


def _read(member: Any, rows: DataFrame) -> Any:
    return member.__get__(rows, DataFrame)


@contextmanager
def watching() -> Iterator[list[tuple[str, DataFrame]]]:
    """The methods by which this thread has Spark compute something in the meantime, and of which frames.

    What Spark counts itself does not tell them: a view for `spark.sql(..., orders=orders)` is a query for it.
    """
    asked: list[tuple[str, DataFrame]] = []
    here = threading.get_ident()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def asking(rows: DataFrame, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == here:
                asked.append((name, rows))
            return method(rows, *args, **options)

        return asking

    with _one_at_a_time:
        own = {name: getattr(DataFrame, name) for name in _ACTIONS}
        own |= {name: DataFrame.__dict__[name] for name in _PROPERTIES}
        for name, member in own.items():
            if name in _PROPERTIES:
                setattr(DataFrame, name, property(noting(name, functools.partial(_read, member))))
            else:
                setattr(DataFrame, name, noting(f"{name}()", member))
        try:
            yield asked
        finally:
            for name, member in own.items():
                setattr(DataFrame, name, member)
