"""Takes in what was read from files: rows for the author's function, malformed lines, and the bytes of any line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from icefield.engine import formats
from icefield.engine.frames import empty_frame
from icefield.engine.lineage import hands_through
from icefield.engine.origin import ARRIVAL, IDENTITY, PROBLEM, RAW, ROW
from icefield.engine.reading import write_raw
from icefield.engine.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Files
    from icefield.engine.landing import Intake
    from icefield.engine.reading import Reading
    from icefield.engine.receive import Received


@dataclass(frozen=True, kw_only=True)  # no slots: what is counted once is kept
class Landed:
    """Lines taken in: `rows` are what the author's function is handed, `problems` the malformed lines, if any."""

    rows: DataFrame
    problems: DataFrame | None
    counts: Mapping[int, int]
    provenance: tuple[str, ...]
    root: Path
    received: Received
    reading: Reading
    exact: DataFrame | None = None

    @cached_property
    def malformed(self) -> int:
        """How many lines are malformed."""
        files = (self.reading.folder / "problems").glob("*.parquet")
        count = sum(pq.read_metadata(file).num_rows for file in files)
        if self.exact is not None:
            told = pq.read_table(self.reading.folder / "exact", columns=[PROBLEM])[PROBLEM]
            count += len(told) - told.null_count
        return int(count)

    def repeated(self, columns: Sequence[str], output: DataFrame) -> NDArray[np.int64] | None:
        """The keys that more than one line has, where reading saw all of them; None where `output` changed them."""
        if len(columns) != 1 or columns[0] not in self.reading.repeated or self.exact is not None:
            return None
        return self.reading.repeated[columns[0]] if hands_through(self.rows, output, columns[0]) else None

    def values(self, column: str) -> pa.Array:
        """The values of a column in all lines that could be read; only for columns that reading watched."""
        place = self.reading.folder / "rows"
        found = (
            pq.read_table(place, columns=[column])[column] if self.reading.rows else pa.chunked_array([], pa.int64())
        )
        return pc.unique(found.drop_null())

    def raw_of(self, wanted: pa.Table, scratch: Path) -> DataFrame | None:
        """The bytes of rows, wanted by file and line, as a frame with these."""
        wanted = wanted.filter(pc.is_valid(wanted[ROW]))
        if not wanted.num_rows:
            return None
        spark, columns = self.rows.sparkSession, [*IDENTITY, RAW]
        frames = [] if self.exact is None else [self.exact.where(f"{RAW} IS NOT NULL").select(*columns)]
        lines = [taken.arrival for taken in self.received.of_lines()]
        of_lines = wanted.filter(pc.is_in(wanted[ARRIVAL], value_set=pa.array(lines, pa.int64())))
        if of_lines.num_rows:
            write_raw(self.root, self.received.intakes, of_lines, scratch)
            frames.append(spark.read.schema(f"{ARRIVAL} BIGINT, {ROW} BIGINT, {RAW} BINARY").parquet(str(scratch)))
        return reduce(lambda a, b: a.unionByName(b), frames) if frames else None


def land(spark: SparkSession, root: Path, source: Files, received: Received) -> Landed:
    """Has Spark decide what was left to it, once; everything after reads from the scratch folder."""
    reading = received.reading
    assert reading is not None
    parquet = [taken for taken in received.intakes if taken.format == "parquet" and taken.file.size]
    frames = [
        *(formats.lines(spark, source, left) for left in reading.undecided),
        *(formats.parquet(spark, root, source, group) for group in _alike(parquet)),
    ]
    schema = formats.schema(source)
    exact = None
    if frames:
        place = str(reading.folder / "exact")
        reduce(lambda a, b: a.unionByName(b), frames).write.mode("overwrite").option("compression", "lz4").parquet(
            place
        )
        exact = spark.read.schema(schema).parquet(place)
    good = [str(reading.folder / "rows")] if reading.rows else []
    aside = [str(reading.folder / "problems")] if reading.problems else []
    decided = [] if exact is None else [str(reading.folder / "exact")]
    rows = _read(spark, schema, [*good, *decided])
    problems = _read(spark, schema, [*aside, *decided])
    if exact is not None and rows is not None and problems is not None:
        rows, problems = rows.where(f"{PROBLEM} IS NULL"), problems.where(f"{PROBLEM} IS NOT NULL")
    if rows is None:
        rows = empty_frame(spark, schema)
    handed = [quoted(column.name) for column in source.columns]
    return Landed(
        rows=rows.withColumn("source_line", F.col(ROW)).select(*handed, *IDENTITY),
        problems=None if problems is None else problems.withColumn("source_line", F.col(ROW)),
        counts={**reading.counts, **{taken.arrival: _count(root, taken) for taken in parquet}},
        provenance=(*source.parts, "source_file", "source_line", "ingested_at"),
        root=root,
        received=received,
        reading=reading,
        exact=exact,
    )


def _read(spark: SparkSession, schema: str, places: list[str]) -> DataFrame | None:
    return spark.read.schema(schema).parquet(*places) if places else None


def _count(root: Path, taken: Intake) -> int:
    return int(pq.read_metadata(root / taken.file.path).num_rows)


def _alike(intakes: Sequence[Intake]) -> list[list[Intake]]:
    """Parquet files that can be read together: those with the same columns."""
    groups: dict[tuple[str, ...], list[Intake]] = {}
    for taken in intakes:
        groups.setdefault(taken.header, []).append(taken)
    return list(groups.values())
