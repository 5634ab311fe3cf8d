"""Notices functions that ask Spark for a result while they are called."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ACTIONS = (
    "approxQuantile",
    "collect",
    "count",
    "first",
    "head",
    "isEmpty",
    "show",
    "tail",
    "take",
    "toArrow",
    "toLocalIterator",
    "toPandas",
)
_one_at_a_time = threading.Lock()


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
        methods = {name: getattr(DataFrame, name) for name in _ACTIONS}
        for name, method in methods.items():
            setattr(DataFrame, name, noting(name, method))
        try:
            yield asked
        finally:
            for name, method in methods.items():
                setattr(DataFrame, name, method)
