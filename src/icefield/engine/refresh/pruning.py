"""Conditions on columns that follow from some keys, so that files without any of those keys are not even opened.

A key that is an expression over a time (`date_trunc('MINUTE', at)`, `to_date(at)`) still says between which times the
rows of a key lie.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from icefield.engine.arrow_rows import dated, truncated
from icefield.engine.sql import quoted
from icefield.lake.arrow_scan import Near

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

#: Up to so many values of a key are listed in a condition.
LISTED = 200
#: Times are told by at most so many spans: a late event long ago must not mean everything since.
_SPANS = 8
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: How much longer than its key a time can be. Zones have days of other lengths than 24 hours.
_LENGTHS = {
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": 3600 * _SECOND,
    "day": 2 * _DAY,
    "week": 8 * _DAY,
    "month": 32 * _DAY,
    "quarter": 93 * _DAY,
    "year": 367 * _DAY,
}
_COLUMN = r"(?P<column>\w+|`[^`]+`)"
_TRUNCATED = re.compile(rf"date_trunc\(\s*(?P<quote>['\"])(?P<unit>\w+)(?P=quote)\s*,\s*{_COLUMN}\s*\)", re.IGNORECASE)
_DATED = re.compile(rf"(?:to_date|date)\(\s*{_COLUMN}\s*\)", re.IGNORECASE)
_CAST = re.compile(rf"cast\(\s*{_COLUMN}\s+as\s+date\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Told:
    """What holds for a column of rows that have one of some keys; exact: and for no other rows."""

    condition: Column
    exact: bool = False


def told_by(expression: str, values: pa.ChunkedArray, kind: DataType, schema: StructType) -> Told | None:
    """What the values of a key say of the rows that have them; `kind` is the type of the key.

    None where the expression does not tell, as of rows whose columns have these types.
    """
    column = next((name for name in schema.names if quoted(name) == expression), None)
    if column is not None:
        if isinstance(kind, TimestampType):
            same = isinstance(schema[column].dataType, TimestampType)
            return Told(_or_null(_within(column, spans(values, 0, 0)), column, values)) if same else None
        return _of_column(F.col(quoted(column)), values)
    found = _over_time(expression, schema)
    if found is None or not isinstance(kind, found.kind):
        return None
    return Told(_or_null(_within(found.column, spans(values, found.before, found.after)), found.column, values))


@dataclass(frozen=True, slots=True)
class _OverTime:
    """A key that is worked out from a time: rows lie between so long before it and so long after it."""

    column: str
    kind: type[DataType]
    before: int
    after: int
    #: The key of times of UTC.
    compute: Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _over_time(expression: str, schema: StructType) -> _OverTime | None:
    text = expression.strip()
    if match := _TRUNCATED.fullmatch(text):
        name, unit = match["column"].strip("`"), match["unit"].lower()
        found = _OverTime(name, TimestampType, 0, _LENGTHS[unit], truncated(unit)) if unit in _LENGTHS else None
    elif match := _DATED.fullmatch(text) or _CAST.fullmatch(text):
        found = _OverTime(match["column"].strip("`"), DateType, _DAY, 2 * _DAY, dated)
    else:
        return None
    if found is None or found.column not in schema.names:
        return None
    return found if isinstance(schema[found.column].dataType, TimestampType) else None


def value_of(expression: str, rows: pa.Table, schema: StructType, zone: str) -> pa.ChunkedArray | None:
    """What an expression gives for rows in memory; None where only Spark knows."""
    column = next((name for name in schema.names if quoted(name) == expression), None)
    if column is not None:
        return rows[column]
    found = _over_time(expression, schema) if zone == "UTC" else None
    return None if found is None else found.compute(rows[found.column])


def near_values(expression: str, values: pa.ChunkedArray, schema: StructType) -> Near | None:
    """What the values of a key say of a column of the rows that have them; None where they say nothing."""
    column = next((name for name in schema.names if quoted(name) == expression), None)
    empty, kind = bool(values.null_count), values.type
    timed = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    try:
        if column is None or pa.types.is_timestamp(kind):
            over = _over_time(expression, schema) if column is None else _OverTime(column, TimestampType, 0, 0, _same)
            if over is None or not timed or not isinstance(schema[over.column].dataType, TimestampType):
                return None
            found = spans(values, over.before, over.after)
            return Near(over.column, spans=tuple((_moment(a), _moment(b)) for a, b in found), null=empty)
        listed = (pa.types.is_integer, pa.types.is_date, pa.types.is_string, pa.types.is_decimal)
        if not any(is_one(kind) for is_one in listed):
            return None
        distinct = pc.unique(values.drop_null())
        if len(distinct) <= LISTED:
            return Near(column, values=tuple(distinct.to_pylist()), null=empty)
        span = pc.min_max(distinct)
        return Near(column, spans=((span["min"].as_py(), span["max"].as_py()),), null=empty)
    except (OverflowError, ValueError):  # Python has no year after 9999
        return None


def _moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _same(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values


def spans(values: pa.ChunkedArray, before: int, after: int) -> list[tuple[int, int]]:
    """Some spans, in microseconds since 1970, in which all of these times or dates lie, each widened on both sides."""
    present = pc.unique(values.drop_null())
    if pa.types.is_date(present.type):
        micros = present.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64) * _DAY
    else:
        micros = present.cast(pa.timestamp("us", present.type.tz)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if not len(micros):
        return []
    micros = np.sort(micros)
    gaps = np.diff(micros)
    widest = np.sort(np.argsort(gaps)[::-1][: _SPANS - 1])
    cuts = [place for place in widest.tolist() if gaps[place] > before + after]
    starts, ends = [0, *(place + 1 for place in cuts)], [*cuts, len(micros) - 1]
    return [(int(micros[a]) - before, int(micros[b]) + after) for a, b in zip(starts, ends, strict=True)]


def _within(column: str, found: list[tuple[int, int]]) -> Column:
    return F.expr(within(quoted(column), found))


def within(name: str, found: list[tuple[int, int]]) -> str:
    """That a time lies in one of some spans, as SQL."""
    parts = [f"{name} BETWEEN timestamp_micros({least}) AND timestamp_micros({most})" for least, most in found]
    return f"({' OR '.join(parts)})" if parts else "false"


def _or_null(condition: Column, column: str, values: pa.ChunkedArray) -> Column:
    return condition | F.col(quoted(column)).isNull() if values.null_count else condition


def _of_column(column: Column, values: pa.ChunkedArray) -> Told | None:
    """The same of a column that is the key itself, and of a type whose values can be listed."""
    kind = values.type
    known = (pa.types.is_integer(kind), pa.types.is_date(kind), pa.types.is_decimal(kind), pa.types.is_string(kind))
    if not any(known):
        return None
    present = values.drop_null()
    if len(present) == 0:
        return Told(column.isNull(), exact=True)
    distinct = pc.unique(present)
    listed = len(distinct) <= LISTED
    try:
        if listed:
            told = column.isin([literal(value.as_py()) for value in distinct])
        else:
            span = pc.min_max(distinct)
            told = between(column, span["min"].as_py(), span["max"].as_py())
    except OverflowError:  # Python has no year after 9999
        return None
    return Told(told | column.isNull() if values.null_count else told, exact=listed)


def between(column: Column, least: Any, greatest: Any, kind: DataType | None = None) -> Column:
    """That a column lies between two values."""
    return column.between(literal(least, kind), literal(greatest, kind))


def literal(value: Any, kind: DataType | None = None) -> Column:
    """A value for Spark; one of time as text: else it would be one of the machine's own zone, or of Java's calendar."""
    if isinstance(value, dt.datetime):
        at = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
        told = at.replace(tzinfo=None).isoformat(" ", "microseconds")
        return F.expr(f"TIMESTAMP_NTZ '{told}'" if isinstance(kind, TimestampNTZType) else f"TIMESTAMP '{told}Z'")
    if isinstance(value, dt.date):
        return F.expr(f"DATE '{value.isoformat()}'")
    return F.lit(value)
