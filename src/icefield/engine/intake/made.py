"""Rows made by Python, brought to the declared types by Arrow, one by one where they do not all fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icefield.engine.intake.files.typed import NoConversion, arrow_type, converted
from icefield.engine.intake.frames import LandedRows, as_json
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, RAW, ROW, TRAVELLING
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from icefield.declare import Column
    from icefield.engine.intake.frames import ReceivedRows


def land(spark: SparkSession, received: ReceivedRows) -> LandedRows:
    """The rows as Spark sees them, and those that do not fit the declared types."""
    source = received.node.source
    assert source is not None
    rows = received.rows[received.first :]
    problems: dict[int, str] = {}
    values: dict[str, list[Any]] = {column.name: [] for column in source.schema}
    for at, row in enumerate(rows):
        for column in source.schema:
            value, problem = _fitted(row[column.name], column)
            values[column.name].append(value)
            if problem:
                problems.setdefault(at, problem)
    places = list(range(received.first, len(received.rows)))
    columns = {column.name: pa.array(values[column.name], arrow_type(column.type)) for column in source.schema}
    table = pa.table({**columns, **_origin(places)})
    good = pa.array([at not in problems for at in range(len(rows))], pa.bool_())
    bad = table.filter(pa.array([at in problems for at in range(len(rows))], pa.bool_())).select(list(TRAVELLING))
    raw = [as_json(rows[at]) for at in sorted(problems)]
    bad = bad.append_column(RAW, pa.array(raw, pa.binary()))
    bad = bad.append_column(PROBLEM, pa.array([problems[at] for at in sorted(problems)], pa.string()))
    names = [*(column.name for column in source.columns), *TRAVELLING]
    frame = spark.createDataFrame(table.filter(good).select(names))
    kinds = {column.name: column.type for column in source.columns} | dict.fromkeys(TRAVELLING, "BIGINT")
    typed = frame.selectExpr(*(f"CAST({quoted(name)} AS {kinds[name]}) AS {quoted(name)}" for name in names))
    return LandedRows(typed, received, bad)


def _fitted(value: Any, column: Column) -> tuple[Any, str]:
    """A value of the declared type, as strictly as a file's; what is wrong with it, if it is none."""
    try:
        found = converted(pa.array([value]), column.type, "UTC")
        if not found.wrong[0]:
            return found.column[0].as_py(), ""
    except (pa.ArrowException, NoConversion, OverflowError, TypeError, ValueError):
        pass
    return None, f"malformed: {column.name} is not a valid {column.type}"


def _origin(places: Sequence[int]) -> dict[str, pa.Array]:
    return {
        ARRIVAL: pa.repeat(pa.scalar(0, pa.int64()), len(places)),
        ROW: pa.array(places, pa.int64()),
        LINE: pa.array([place + 1 for place in places], pa.int64()),
    }


def raw(received: ReceivedRows, wanted: pa.Table) -> pa.Array:
    """Rows as JSON, by their places."""
    places = wanted[ROW].to_pylist()
    return pa.array([None if at is None else as_json(received.rows[at]) for at in places], pa.binary())
