"""Counts rows whose value another table does not have.

Where no row failed at the versions before, only rows that came since can fail now, as long as no value went from the
other table: the cost follows the change. That no row failed is remembered with the table that has the check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.engine.batch import evaluate
from icefield.engine.limits import compared_rows
from icefield.engine.promises.spark_plans import sees_rows_alone
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from icefield.declare import References
    from icefield.engine.checks.view import TableView
    from icefield.graph.state import Version

_ROWS = "_icefield_rows"


@dataclass(frozen=True, slots=True)
class Held:
    """Checks that no row failed, with the snapshots of both tables: as remembered, and as found by this run."""

    before: Mapping[str, str] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)


def missing(check: References, rows: TableView, others: TableView, held: Held, scratch: Path) -> tuple[int, object]:
    """How many rows have a value that the others do not have, and one such value."""
    key = _key(check, rows.frame)
    unsure = _unsure(check, rows, others) if key and _held(held.before, key, rows, others) else rows
    count, example = _count(check, unsure, others, scratch)
    if key and not count and (now := _snapshots(rows.version, others.version)):
        held.now[key] = now
    return count, example


def _key(check: References, rows: DataFrame) -> str | None:
    """By what it is remembered; None where the rows it is about depend on more than the rows."""
    chosen = rows.where(check.where)
    if not sees_rows_alone(chosen):
        return None
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    return f"{check.column} of {check.of or 'it'} where {check.where} to {check.to} in {zone}"


def _held(before: Mapping[str, str], key: str, rows: TableView, others: TableView) -> bool:
    """Whether no row failed at the versions since which it is known what came and went."""
    if rows.moves is None or others.moves is None:
        return False
    at = _snapshots(rows.moves.since, others.moves.since)
    return at is not None and before.get(key) == at


def _snapshots(one: Version | None, other: Version | None) -> str | None:
    # Not the numbers of versions: two runs give the same ones if one of them is not published.
    if one is None or other is None or one.snapshot is None or other.snapshot is None:
        return None
    return f"{one.snapshot} {other.snapshot}"


def _unsure(check: References, rows: TableView, others: TableView) -> TableView:
    """The rows that may fail, where none did before: those that came, unless the others lost a value."""
    assert rows.moves is not None
    assert others.moves is not None
    if others.moves.went is None:
        return rows.moves.came
    lost = others.lacking(check.column, others.moves.went([check.column])[check.column])
    return rows if lost is None or len(lost) else rows.moves.came


def _count(check: References, rows: TableView, others: TableView, scratch: Path) -> tuple[int, object]:
    column = quoted(check.column)
    chosen = rows.frame.where(check.where).where(f"{column} IS NOT NULL")
    if rows.fit and others.can_search(check.column):
        wanted = rows.columns([check.column]) if check.where == "true" else None
        if wanted is None:
            wanted = evaluate(chosen.select(column), scratch).arrow()
        values = wanted[check.column]
        if (absent := others.lacking(check.column, values)) is not None:
            return _told(values, absent)
    # Counted by value before they are compared: few values go through the shuffle, not all rows.
    counted = evaluate(chosen.groupBy(column).agg(F.count("*").alias(_ROWS)), scratch)
    if counted.count() <= compared_rows():
        grouped = counted.arrow()
        if (absent := others.lacking(check.column, grouped[check.column])) is not None:
            return _told(grouped[check.column], absent, grouped[_ROWS])
    missing = counted.frame.join(others.frame.select(column).distinct(), check.column, "left_anti")
    total = missing.agg(F.sum(_ROWS), F.first(column)).first()
    assert total is not None
    return int(total[0] or 0), total[1]


def _told(values: pa.ChunkedArray, absent: pa.Array, times: pa.ChunkedArray | None = None) -> tuple[int, object]:
    """How many of some values are absent ones, and one of these; `times`: how often each value is there."""
    if not len(absent):
        return 0, None
    gone = pc.is_in(values, value_set=absent.cast(values.type))
    count = pc.sum(gone if times is None else times.filter(gone)).as_py()
    return int(count or 0), absent[0].as_py()
