"""Aggregates over whole tables that follow what is appended, so that only new rows are looked at.

`max(a) >= max(b)` is made of parts, each a sum, count, minimum or maximum. The parts of all rows are those of the rows
before, merged with those of the rows that came. They are kept with the table, as text.
"""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, DecimalType, FractionalType, IntegralType

from icefield.engine.promises.spark_plans import analysed, children_of, items, sees_rows_alone
from icefield.engine.sql import text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_MERGED = {
    "sum": "CAST(coalesce({new} + {old}, {new}, {old}) AS {kind})",
    "count": "coalesce({new} + {old}, {new}, {old})",
    "count_if": "coalesce({new} + {old}, {new}, {old})",
    "min": "least({new}, {old})",
    "max": "greatest({new}, {old})",
}
#: Types whose values are the same after they were text.
_KEPT = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|date|string|boolean|timestamp_ntz|timestamp")
#: Types of sums of which `+` gives up the last digit.
ROUNDED = re.compile(r"decimal\(38,(?:[7-9]|\d\d)\)")
_ROWS = "t"
_COLUMN = re.compile(rf"(?<![\w`]){_ROWS}\.")
#: How Spark writes a date less some days, in words that it does not read.
_DAYS = re.compile(r"extractansiintervaldays\(INTERVAL '(-?\d+)' DAY\)")


@dataclass(slots=True)
class Amounts:
    """Aggregates over a table: `known` are parts of the rows before, `new` the rows since; without, all are read."""

    all_rows: Callable[[], DataFrame]
    known: Mapping[str, str | None] = field(default_factory=dict)
    new_rows: Callable[[], DataFrame] | None = None
    #: The parts of all rows, as far as they were asked for.
    found: dict[str, str | None] = field(default_factory=dict)
    #: What was asked for already.
    values: dict[str, object] = field(default_factory=dict)

    @property
    def whole(self) -> DataFrame:
        """All rows."""
        return self.all_rows()

    def value(self, expression: str) -> object:
        """An aggregate over all rows."""
        if expression not in self.values:
            evaluate_together([(self, expression)])
        return self.values[expression]

    def asked(self, expression: str) -> tuple[DataFrame, _Parts | None]:
        """A frame of one row with the value, and the parts that it also has."""
        parts = _parts_of(self.whole, expression)
        if parts is None:
            return self.whole.selectExpr(f"{expression} AS value").limit(1), None  # it may be no aggregate
        follows = self.new_rows is not None and all(part.key in self.known for part in parts.parts)
        return self._followed(parts) if follows else self._read(parts, expression), parts

    def _read(self, parts: _Parts, expression: str) -> DataFrame:
        told = [f"CAST({part.sql} AS STRING) AS {part.name}" for part in parts.parts]
        return self.whole.alias(_ROWS).selectExpr(f"{expression} AS value", *told)

    def _followed(self, parts: _Parts) -> DataFrame:
        assert self.new_rows is not None
        came = self.new_rows().alias(_ROWS).selectExpr(*(f"{part.sql} AS {part.name}" for part in parts.parts))
        merged = came.selectExpr(*(f"{part.merged(self.known[part.key])} AS {part.name}" for part in parts.parts))
        told = [f"CAST({part.name} AS STRING) AS {part.name}" for part in parts.parts]
        return merged.selectExpr(f"{parts.whole} AS value", *told)


def foresee(wanted: Sequence[tuple[Amounts, str]]) -> None:
    """Evaluates amounts by one query; where one of them cannot be evaluated, all wait until they are asked for."""
    with suppress(PySparkException):
        evaluate_together(wanted)


def evaluate_together(wanted: Sequence[tuple[Amounts, str]]) -> None:
    """Evaluates aggregates of several tables by one query."""
    asked = [(amounts, expression, *amounts.asked(expression)) for amounts, expression in wanted]
    if not asked:
        return
    texts = [
        frame.select(
            F.lit(n).alias("n"), F.array(*(F.col(name).cast("string") for name in frame.columns)).alias("texts")
        )
        for n, (_, _, frame, _) in enumerate(asked)
    ]
    found = {row["n"]: row["texts"] for row in reduce(lambda a, b: a.union(b), texts).collect()}
    for n, (amounts, expression, frame, parts) in enumerate(asked):
        value, *told = found.get(n, [None])
        amounts.values[expression] = _read_back(value, frame.schema["value"].dataType)
        amounts.found |= {part.key: text for part, text in zip(parts.parts, told, strict=True)} if parts else {}


def _read_back(text: str | None, kind: DataType) -> object:
    """A value that came as text, of which numbers are to be compared as such."""
    if text is None:
        return None
    if isinstance(kind, BooleanType):
        return text == "true"
    if isinstance(kind, IntegralType | DecimalType):
        return Decimal(text)
    if isinstance(kind, DateType):
        with suppress(ValueError):  # Python has no year after 9999
            return dt.date.fromisoformat(text)
    return float(text) if isinstance(kind, FractionalType) else text


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    sql: str
    how: str
    kind: str
    zone: str

    @property
    def key(self) -> str:
        """By what it is known in the next run; hours and days depend on the time zone."""
        return f"{self.sql} in {self.zone}"

    def merged(self, old: str | None) -> str:
        """SQL that merges the part of new rows with that of the rows before."""
        known = f"CAST({'NULL' if old is None else text(old)} AS {self.kind})"
        return _MERGED[self.how].format(new=self.name, old=known, kind=self.kind)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of an expression, and the expression over their names."""

    parts: tuple[_Part, ...]
    whole: str


def _parts_of(rows: DataFrame, expression: str) -> _Parts | None:
    """What an expression is made of; None where it does not follow from such parts, or depends on the clock."""
    frame = rows.alias(_ROWS).selectExpr(f"{expression} AS value")
    plan = analysed(frame)
    if plan.nodeName() != "Aggregate" or not sees_rows_alone(frame):
        return None
    (entry,) = items(plan.aggregateExpressions())
    value = entry.child() if entry.nodeName() == "Alias" else entry
    found = {_sql(one): one for one in _aggregates(value)}
    zone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    parts = [_part(f"p{number}", sql, one, zone) for number, (sql, one) in enumerate(found.items())]
    if not value.deterministic() or any(part is None for part in parts):
        return None
    known = tuple(part for part in parts if part is not None)
    whole = _sql(value)
    for part in known:
        whole = re.sub(rf"(?<![\w`]){re.escape(part.sql)}", part.name, whole)
    if _COLUMN.search(whole) or not _resolves(rows, known, whole):
        return None
    return _Parts(known, whole)


def _sql(expression: Any) -> str:
    return _DAYS.sub(r"\1", str(expression.sql()))


def _aggregates(value: Any) -> list[Any]:
    if value.nodeName() == "AggregateExpression":
        return [value]
    return [found for child in children_of(value) for found in _aggregates(child)]


def _part(name: str, sql: str, aggregate: Any, zone: str) -> _Part | None:
    how, kind = str(aggregate.aggregateFunction().prettyName()), str(aggregate.dataType().catalogString())
    if aggregate.isDistinct() or how not in _MERGED or not _KEPT.fullmatch(kind):
        return None
    if how == "sum" and ROUNDED.fullmatch(kind):
        return None
    if kind == "timestamp" and zone != "UTC":  # where an hour comes twice a year, its text does not say which
        return None
    return _Part(name, sql, how, kind, zone)


def _resolves(rows: DataFrame, parts: tuple[_Part, ...], whole: str) -> bool:
    """Whether Spark reads back what it wrote of an expression."""
    try:
        parsed = rows.alias(_ROWS).selectExpr(*(f"{part.sql} AS {part.name}" for part in parts))
        parsed.selectExpr(whole).schema  # noqa: B018 - analysed by that
    except PySparkException:
        return False
    return True
