"""`latest` and `history`: from the events of a key to its state, and to all the states that it has had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from icefield.cdc.events import ENVELOPE
from icefield.declare.registry import caller
from icefield.errors import InvalidCapture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    Names = str | Sequence[str]

_ADDED = ("valid_from", "valid_to", "is_current")


def latest(events: DataFrame, keys: Names, sequence_by: Names, *, deleted: str = "is_deleted") -> DataFrame:
    """The last event of each key by `sequence_by`, unless the row is deleted (SCD type 1)."""
    by, order = _names(keys), _names(sequence_by)
    newest = Window.partitionBy(*map(F.col, by)).orderBy(*(one.desc() for one in _total_order(events, order)))
    last = events.withColumn("_nth", F.row_number().over(newest)).where("_nth = 1").drop("_nth")
    return last.where(f"NOT ({deleted})")


def history(
    events: DataFrame,
    keys: Names,
    sequence_by: Names,
    valid_from: str,
    *,
    tracked: Names = (),
    ignored: Names = (),
    deleted: str = "is_deleted",
) -> DataFrame:
    """A row for each state of a key, with `valid_from`, `valid_to` (exclusive, NULL for now) and `is_current` (SCD 2).

    A change of a `tracked` column begins a new state; by default these are all columns but the keys, the order, what
    `parse` adds and the `ignored` ones. Other columns have the last value of their state.
    """
    by, order = _names(keys), _names(sequence_by)
    compared = _tracked(events, by, order, valid_from, _names(tracked), _names(ignored))
    key = [F.col(name) for name in by]
    in_order = Window.partitionBy(*key).orderBy(*_total_order(events, order))
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # NULL for a row that is gone: whatever comes next begins a state.
    state = F.when(~F.expr(deleted), F.struct(*(F.col(name) for name in compared)))
    rows = events.withColumns(
        {
            "_state": state,
            "_before": F.lag(state).over(in_order),
            "_first": F.row_number().over(in_order) == 1,
            # A clock that was set back makes no state end before it begins.
            "_from": F.max(valid_from).over(so_far),
        }
    )
    begins = F.col("_first") | ~F.col("_state").eqNullSafe(F.col("_before"))
    numbered = rows.withColumn("_number", F.sum(begins.cast("INT")).over(so_far))
    return _spans(numbered, key, _total_order(events, order), events.columns)


def _spans(rows: DataFrame, key: Sequence[Column], order: Sequence[Column], columns: Sequence[str]) -> DataFrame:
    """One row for each state, which lasts until the next one, or until the row was deleted."""
    in_state = Window.partitionBy(*key, "_number")
    marked = rows.withColumns(
        {
            "valid_from": F.min("_from").over(in_state),
            "_last": F.row_number().over(in_state.orderBy(*(one.desc() for one in order))) == 1,
        }
    ).where("_last")
    by_number = Window.partitionBy(*key).orderBy("_number")
    ended = marked.withColumn("valid_to", F.lead("valid_from").over(by_number))
    own = [name for name in columns if name not in _ADDED]
    is_current = F.col("valid_to").isNull().alias("is_current")
    return ended.where("_state IS NOT NULL").select(*own, "valid_from", "valid_to", is_current)


def _tracked(
    events: DataFrame, keys: list[str], order: list[str], valid_from: str, tracked: list[str], ignored: list[str]
) -> list[str]:
    if unknown := [name for name in (*keys, *order, *tracked, *ignored, valid_from) if name not in events.columns]:
        raise InvalidCapture(
            f"history() names the column {unknown[0]}, which its events do not have",
            where=str(caller()),
            remedy=f"name one of {', '.join(events.columns)}",
        )
    if tracked:
        return [name for name in tracked if name not in ignored]
    other = {*keys, *order, valid_from, *ignored, *ENVELOPE, *_ADDED}
    return [name for name in events.columns if name not in other]


def _total_order(events: DataFrame, order: Sequence[str]) -> list[Column]:
    """What rows are ordered by, and then all their other columns: no two computations choose differently."""
    others = [
        field.name
        for field in events.schema
        if field.name not in order and not isinstance(field.dataType, MapType | VariantType)
    ]
    return [F.col(name) for name in (*order, *others)]


def _names(given: Names) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
