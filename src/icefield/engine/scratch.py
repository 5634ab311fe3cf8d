"""Frames that are evaluated once: written to a file of the run, read back as often as needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows in a scratch folder, for Spark and for Arrow."""

    frame: DataFrame
    place: Path

    def count(self) -> int:
        """How many there are, from the files' footers."""
        return sum(pq.read_metadata(file).num_rows for file in self.place.glob("*.parquet"))

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """All of them in memory; for what is known to be small."""
        return pq.read_table(self.place, columns=columns)


def store(frame: DataFrame, place: Path) -> Stored:
    """Evaluates a frame, once."""
    frame.write.mode("overwrite").parquet(str(place))
    return Stored(frame.sparkSession.read.schema(frame.schema).parquet(str(place)), place)
