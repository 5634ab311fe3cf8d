"""Rows that were evaluated once: as Arrow in memory where they are small, else in Parquet files of the run.

Small rows enter Spark as part of a query's plan and come back without a file. A query is small if what it reads is,
which its optimised plan tells; a result that turns out to be larger than the driver may hold goes to files after all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from icefield.engine import limits
from icefield.engine.folders import Folder
from icefield.engine.promises.spark_plans import bytes_read_by
from icefield.errors import ScratchLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Batch(Protocol):
    """Rows that were evaluated once, for Spark and for Arrow."""

    @property
    def frame(self) -> DataFrame:
        """All rows for Spark."""

    @property
    def schema(self) -> StructType:
        """Their columns."""

    def count(self) -> int:
        """How many rows there are."""

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """All rows, or some of their columns, in memory; for what is known to be small."""

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """All rows, in parts that fit into memory, always in the same order."""

    def span(self, column: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column; None where that is not known, or some are NULL."""


@dataclass(frozen=True, slots=True)
class InFiles(Folder):
    """Rows in Parquet files of the run."""

    frame: DataFrame

    @property
    def schema(self) -> StructType:
        """Their columns."""
        return self.frame.schema


@dataclass(frozen=True)  # no slots: the frame is made when it is first asked for
class InMemory:
    """Rows in memory."""

    spark: SparkSession
    schema: StructType
    table: pa.Table
    _frames: list[DataFrame] = field(default_factory=list, repr=False)

    @property
    def frame(self) -> DataFrame:
        """All rows for Spark, as part of the query's plan."""
        if not self._frames:
            self._frames.append(local_frame(self.spark, self.table, self.schema))
        return self._frames[0]

    def count(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """All rows, or some of their columns."""
        return self.table if columns is None else self.table.select(columns)

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """All rows at once: they are small."""
        yield self.arrow(columns)

    def span(self, column: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column; None where there is none, or some are NULL."""
        values = self.table[column]
        if values.null_count or not len(values):
            return None
        with suppress(OverflowError, ValueError, pa.ArrowException):  # Python has no year after 9999
            found = pc.min_max(values)
            return found["min"].as_py(), found["max"].as_py()
        return None


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Rows of the driver as part of a query's plan; few of them in one partition, which spares every shuffle."""
    # PySpark cannot convert nested columns without a chunk.
    whole = (
        rows.combine_chunks() if rows.num_rows else pa.table([pa.array([], f.type) for f in rows.schema], rows.schema)
    )
    frame: DataFrame = spark.createDataFrame(whole, schema)
    # Else it would have one for every 10,000 rows, each of which would write a file.
    return frame.coalesce(1 + rows.nbytes // limits.LIMITS.one_partition_bytes)


def evaluate(frame: DataFrame, place: Path) -> Batch:
    """Evaluates a frame, once; rows that do not fit into memory are written to the given folder."""
    return collected(frame) or write(frame, place)


def collected(frame: DataFrame, *, appended: bool = False) -> InMemory | None:
    """Evaluates a frame into memory; None where what it reads, or what it gives, is too large for that.

    `appended`: all of it is to be appended to a table, which many rows do faster without coming to the driver.
    """
    kinds = _arrow_schema(frame.schema)
    held = limits.LIMITS.held_bytes
    at_most = min(limits.LIMITS.appended_bytes, held) if appended else held
    if kinds is None or bytes_read_by(frame) > at_most:
        return None
    try:
        found = frame.toArrow()
    except (Py4JJavaError, PySparkException) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise
    return InMemory(frame.sparkSession, nullable(frame.schema), found.cast(kinds))


def write(frame: DataFrame, place: Path) -> InFiles:
    """Evaluates a frame, once, into files; refuses files that do not have all rows that Spark's tasks have written."""
    written = Observation()
    frame.observe(written, F.count(F.lit(1)).alias("rows")).write.mode("overwrite").parquet(str(place))
    found = InFiles(place, frame.sparkSession.read.schema(frame.schema).parquet(str(place)))
    expected = written.get.get("rows")
    if expected is not None and found.count() != expected:
        raise ScratchLost(str(place), expected, found.count())
    return found


def keep(spark: SparkSession, schema: StructType, parts: Iterable[pa.Table], place: Path) -> Batch:
    """Rows that Arrow has, for Spark as well; columns that a part lacks are NULL."""
    columns = to_arrow_schema(schema)
    fitted = (_fitted(part, columns) for part in parts)
    held: list[pa.Table] = []
    for part in fitted:
        held.append(part)
        if sum(one.nbytes for one in held) > limits.LIMITS.held_bytes:
            return _spilled(spark, schema, columns, held, fitted, place)
    return InMemory(spark, nullable(schema), pa.concat_tables(held) if held else columns.empty_table())


def _spilled(
    spark: SparkSession,
    schema: StructType,
    columns: pa.Schema,
    held: list[pa.Table],
    rest: Iterable[pa.Table],
    place: Path,
) -> InFiles:
    place.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(place / "0.parquet", columns) as writer:
        for part in chain(held, rest):
            writer.write_table(part)
    return InFiles(place, spark.read.schema(schema).parquet(str(place)))


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    given = set(rows.column_names)
    found = [
        rows[field.name].cast(field.type) if field.name in given else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    return pa.table(found, schema=columns)


def _arrow_schema(schema: StructType) -> pa.Schema | None:
    """The columns as files would have them: NULL everywhere, times in UTC; None where Arrow lacks a type."""
    try:
        return to_arrow_schema(nullable(schema))
    except PySparkException:
        return None


def nullable(schema: StructType) -> StructType:
    """The same columns, each of which may be NULL, as those of files may."""
    found = _nullable(schema)
    assert isinstance(found, StructType)
    return found


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind])  # noqa: FBT003
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), valueContainsNull=True)
    return kind
