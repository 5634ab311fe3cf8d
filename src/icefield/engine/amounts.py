"""Aggregates over whole tables that follow what is appended, so that only new rows are looked at.

`max(a) >= max(b)` is made of parts, each a sum, count, minimum or maximum. The parts of all rows are those of the rows
before, merged with those of the rows that came. They are kept with the table, as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from icefield.engine.promises.spark_plans import analysed, children_of, items, sees_rows_alone
from icefield.engine.sql import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

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

    whole: DataFrame
    known: Mapping[str, str | None] = field(default_factory=dict)
    new: DataFrame | None = None
    #: The parts of all rows, as far as they were asked for.
    found: dict[str, str | None] = field(default_factory=dict)

    def value(self, expression: str) -> object:
        """An aggregate over all rows."""
        parts = _parts_of(self.whole, expression)
        if parts is None:
            row = self.whole.selectExpr(f"{expression} AS value").first()
            return None if row is None else row["value"]
        follows = self.new is not None and all(part.key in self.known for part in parts.parts)
        row = self._followed(parts) if follows else self._read(parts, expression)
        self.found |= {part.key: row[part.name] for part in parts.parts}
        return row["value"]

    def _read(self, parts: _Parts, expression: str) -> Any:
        told = [f"CAST({part.sql} AS STRING) AS {part.name}" for part in parts.parts]
        return self.whole.alias(_ROWS).selectExpr(f"{expression} AS value", *told).first()

    def _followed(self, parts: _Parts) -> Any:
        assert self.new is not None
        came = self.new.alias(_ROWS).selectExpr(*(f"{part.sql} AS {part.name}" for part in parts.parts))
        merged = came.selectExpr(*(f"{part.merged(self.known[part.key])} AS {part.name}" for part in parts.parts))
        told = [f"CAST({part.name} AS STRING) AS {part.name}" for part in parts.parts]
        return merged.selectExpr(f"{parts.whole} AS value", *told).first()


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
