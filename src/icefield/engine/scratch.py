"""Frames that are evaluated once: written to a file of the run, read back as often as needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from icefield.engine.folders import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Stored(Folder):
    """The same for Spark, too."""

    frame: DataFrame


def keep(spark: SparkSession, schema: StructType, parts: Iterable[pa.Table], place: Path) -> Stored:
    """Rows that Arrow has, where Spark can read them, too; columns that a part lacks are NULL."""
    columns = to_arrow_schema(schema)
    place.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(place / "0.parquet", columns) as writer:
        for part in parts:
            writer.write_table(_fitted(part, columns))
    return Stored(place, spark.read.schema(schema).parquet(str(place)))


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    given = set(rows.column_names)
    found = [
        rows[field.name].cast(field.type) if field.name in given else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    return pa.table(found, schema=columns)


def store(frame: DataFrame, place: Path) -> Stored:
    """Evaluates a frame, once."""
    frame.write.mode("overwrite").parquet(str(place))
    return Stored(place, frame.sparkSession.read.schema(frame.schema).parquet(str(place)))
