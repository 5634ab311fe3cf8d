"""Notices functions that ask Spark for a result while they are called."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: By these everything else (first, head, take) asks as well.
_ACTIONS = ("collect", "count", "isEmpty", "tail", "toPandas", "toArrow", "toLocalIterator", "approxQuantile", "show")
_one_at_a_time = threading.Lock()


@contextmanager
def watching() -> Iterator[list[str]]:
    """The methods of DataFrames by which this thread has Spark compute something in the meantime.

    What Spark counts itself does not tell them: a view for `spark.sql(..., orders=orders)` is a query for it.
    """
    asked: list[str] = []
    here = threading.get_ident()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def asking(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == here:
                asked.append(name)
            return method(*args, **options)

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
