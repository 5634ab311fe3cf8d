"""Holds functions of `applyInPandas` and `applyInArrow` to the group they were called for.

A plan does not show what Python returns. So that a key can be followed through such a step, the columns of the result
that are named like those it groups by must hold the group's values, and every call is checked for that.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.group import GroupedData
from pyspark.sql.pandas.typehints import infer_group_arrow_eval_type_from_func, infer_group_pandas_eval_type_from_func
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_checking: ContextVar[bool] = ContextVar("icefield_checking_groups", default=False)


class GroupKeyChanged(ValueError):
    """A function that was handed the rows of one group gave rows of another."""


@contextmanager
def checked_groups() -> Iterator[None]:
    """Checks every function that is given to `applyInPandas` or `applyInArrow` in the meantime."""
    _install()
    token = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(token)


def checking_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """A table's function that is called with these checks."""

    @functools.wraps(function)
    def call(**frames: Any) -> Any:
        with checked_groups():
            return function(**frames)

    return call


@functools.cache
def _install() -> None:
    """Once in a process; without `checked_groups` both work as ever."""
    in_pandas = infer_group_pandas_eval_type_from_func, PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF
    in_arrow = infer_group_arrow_eval_type_from_func, PythonEvalType.SQL_GROUPED_MAP_ARROW_UDF
    for name, check, kind in (("applyInPandas", _in_pandas, in_pandas), ("applyInArrow", _in_arrow, in_arrow)):
        original = getattr(GroupedData, name)
        setattr(GroupedData, name, _checked(original, check, *kind))


def _checked(
    original: Callable[..., Any], check: Callable[..., None], infer: Callable[..., Any], whole: int
) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(self: GroupedData, func: Callable[..., Any], schema: Any) -> Any:
        if not _checking.get() or _gives_parts(func, infer, whole):
            return original(self, func, schema)
        names = self.count().columns[:-1]  # the only way to ask a group what it groups by
        parsed = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        given = [entry.name for entry in cast("StructType", parsed)]
        places = {name: given.index(name) for name in names if name in given}
        return original(self, _of_one_group(func, names, places, check), schema)

    return apply


def _gives_parts(func: Callable[..., Any], infer: Callable[..., Any], whole: int) -> bool:
    """Whether Spark hands it a group in several parts, which it tells by annotations."""
    try:
        return infer(func) not in (None, whole)
    except Exception:
        return False


def _of_one_group(
    func: Callable[..., Any], names: list[str], places: Mapping[str, int], check: Callable[[Any, str, int, Any], None]
) -> Callable[..., Any]:
    wants_key = len(inspect.signature(func).parameters) > 1

    def checked(key: tuple[Any, ...], rows: Any) -> Any:
        result = func(key, rows) if wants_key else func(rows)
        for name, value in zip(names, key, strict=True):
            if name in places:
                check(result, name, places[name], value)
        return result

    return checked


def _in_pandas(result: Any, name: str, place: int, value: Any) -> None:
    import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415 - in a worker of Spark's

    if not isinstance(result, pd.DataFrame):  # which Spark complains about
        return
    by_name = any(isinstance(column, str) for column in result.columns)
    found = result.get(name) if by_name else result.iloc[:, place]
    if found is None:
        return
    same = found.isna() if pd.api.types.is_scalar(value) and pd.isna(value) else found == value
    if not bool(same.all()):
        raise _changed(name, value)


def _in_arrow(result: Any, name: str, _place: int, value: Any) -> None:
    import pyarrow.compute as pc  # noqa: PLC0415 - in a worker of Spark's

    if name not in getattr(result, "column_names", ()):
        return
    found = result[name]
    same = pc.is_null(found) if not value.is_valid else pc.equal(found, value.cast(found.type))
    if len(found) and pc.all(same, skip_nulls=False).as_py() is not True:
        raise _changed(name, value)


def _changed(name: str, value: Any) -> GroupKeyChanged:
    return GroupKeyChanged(
        f"the function received the group {name} = {value} but returned rows with a different {name}: return the"
        " group's value, or rename the column"
    )
