"""Frames that are evaluated once: written to a file of the run, read back as often as needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Folder:
    """Rows in the Parquet files of a scratch folder, for Arrow; a folder without files has none."""

    place: Path

    def count(self) -> int:
        """How many there are, from the files' footers."""
        return sum(pq.read_metadata(file).num_rows for file in self._files())

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """All of them in memory, in the order of `batches`; for what is known to be small."""
        return pa.concat_tables(self.batches(columns))

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """All of them, always in the same order, so many at a time that memory does not grow with their number."""
        for file in self._files():
            with pq.ParquetFile(file) as opened:
                if not opened.metadata.num_rows:  # still tells its columns
                    yield opened.read(columns)
                for batch in opened.iter_batches(_BATCH, columns=columns):
                    yield pa.Table.from_batches([batch])

    def span(self, column: str) -> tuple[Any, Any] | None:
        """Between which two values a column of a plain type lies, from the files' footers.

        None where they do not tell, some values are NULL, or the name could be a path into another column.
        """
        if "." in column:
            return None
        told = [part for file in self._files() for part in _statistics(pq.read_metadata(file), column)]
        if not told or any(part is None or part.null_count != 0 or not part.has_min_max for part in told):
            return None
        try:
            spans = [(part.min, part.max) for part in told if part is not None]
        except (OverflowError, ValueError):  # Python has no year after 9999
            return None
        return min(least for least, _ in spans), max(greatest for _, greatest in spans)

    def _files(self) -> list[Path]:
        return sorted(self.place.rglob("*.parquet"))


def _statistics(footer: pq.FileMetaData, column: str) -> list[pq.Statistics | None]:
    """Of each group of rows."""
    place = next((n for n in range(footer.num_columns) if footer.schema.column(n).path == column), None)
    if place is None:
        return [None]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [group.column(place).statistics for group in groups if group.num_rows]


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
