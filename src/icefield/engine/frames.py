"""Small frames made on the driver, as part of the query's plan.

`createDataFrame` of Python rows would start a Python worker and a job of its own for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from icefield.engine.sql import quoted, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

Cell = str | int | None


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """A frame with these columns and no rows."""
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(columns, StructType)
    # As text: a call to Java for each column would take longer than all of the analysis.
    return spark.range(0).selectExpr(
        *(f"CAST(NULL AS {f.dataType.simpleString()}) AS {quoted(f.name)}" for f in columns)
    )


def small_frame(spark: SparkSession, columns: Mapping[str, str], rows: Sequence[Sequence[Cell]]) -> DataFrame:
    """A frame of a few rows; `columns` gives names and types."""
    if not rows:
        return empty_frame(spark, ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items()))
    listed = ", ".join(f"({', '.join(_literal(cell) for cell in row)})" for row in rows)
    typed = ", ".join(f"CAST(col{n} AS {kind}) AS {quoted(name)}" for n, (name, kind) in enumerate(columns.items(), 1))
    return spark.sql(f"SELECT {typed} FROM VALUES {listed}")


def _literal(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    return text(cell) if isinstance(cell, str) else str(cell)
